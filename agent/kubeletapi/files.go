package kubeletapi

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

const (
	// recheckPeriod is the minimum time between two checks of a file. Each request triggers a
	// check, and there may be many requests.
	recheckPeriod = time.Second
	// maxFileBytes is more than the size of any certificate or token.
	maxFileBytes = 1 << 20
)

// watched is a value that is parsed from files, and parsed again when they have changed.
type watched[T any] struct {
	paths []string
	parse func(data ...[]byte) (T, error)
	log   *slog.Logger
	// deleteOnError reports whether unusable files delete the value. Otherwise the previous value
	// stays in use, because a certificate may be half written.
	deleteOnError bool
	value         atomic.Pointer[T] // nil: no value

	// checking is held while the files are checked. Other requests use the previous value, so
	// that they do not wait for a slow disk.
	checking    sync.Mutex
	seen        []os.FileInfo
	checkedAt   time.Time
	lastProblem string // the last logged problem
}

// watch returns a watched value and reads the files for the first time.
func watch[T any](log *slog.Logger, parse func(...[]byte) (T, error), paths ...string) (*watched[T], error) {
	w := &watched[T]{paths: paths, parse: parse, log: log, seen: make([]os.FileInfo, len(paths)), checkedAt: clock.RealClock{}.Now()}
	return w, w.read()
}

// get returns the value, and false if there is no value.
func (w *watched[T]) get() (value T, ok bool) {
	if w.checking.TryLock() {
		w.check(clock.RealClock{}.Now())
		w.checking.Unlock()
	}
	if p := w.value.Load(); p != nil {
		return *p, true
	}
	return value, false
}

// check reads the files if they have changed. Callers hold checking.
func (w *watched[T]) check(now time.Time) {
	if now.Sub(w.checkedAt) < recheckPeriod {
		return
	}
	w.checkedAt = now
	if w.lastProblem == "" && !w.changed() {
		return
	}
	before, problem := w.lastProblem, ""
	if err := w.read(); err != nil {
		problem = err.Error()
	}
	w.lastProblem = problem
	switch {
	case problem == before:
	case problem == "":
		w.log.Info("the certificate or token files are usable again", "files", w.paths)
	case !w.deleteOnError:
		w.log.Error("could not reload the certificate, the previous one stays in use", "files", w.paths, "err", problem)
	case before == "":
		w.value.Store(nil)
		w.log.Error("could not read the token, all requests with a token are refused until it can be read", "err", problem)
	}
}

func (w *watched[T]) changed() bool {
	for i, path := range w.paths {
		now, err := os.Stat(path)
		was := w.seen[i]
		if err != nil || was == nil || !os.SameFile(now, was) || !now.ModTime().Equal(was.ModTime()) || now.Size() != was.Size() || now.Mode() != was.Mode() {
			return true
		}
	}
	return false
}

func (w *watched[T]) read() error {
	data, seen := make([][]byte, len(w.paths)), make([]os.FileInfo, len(w.paths))
	for i, path := range w.paths {
		var err error
		if data[i], seen[i], err = readFile(path); err != nil {
			return err
		}
	}
	value, err := w.parse(data...)
	if err != nil {
		return fmt.Errorf("%v: %w", w.paths, err)
	}
	w.value.Store(&value)
	w.seen = seen
	return nil
}

// warnOfReaders logs a warning if all users of this machine can read a secret.
func warnOfReaders(path string, log *slog.Logger) {
	if runtime.GOOS == "windows" {
		return // the mode has no permissions
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
		log.Warn("a secret file is readable by all users of this machine", "file", path, "mode", info.Mode().Perm().String())
	}
}

// readFile reads a regular file. It does not block on a pipe. It follows symbolic links,
// because the files of a mounted Secret are links.
func readFile(path string) ([]byte, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, nil, fmt.Errorf("%s: must be a regular file of at most %d bytes", path, maxFileBytes)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	return data, info, err
}

// fileCert is the current certificate in two files.
type fileCert struct {
	file *watched[*tls.Certificate]
}

func newFileCert(certFile, keyFile string, log *slog.Logger) (*fileCert, error) {
	w, err := watch(log, func(data ...[]byte) (*tls.Certificate, error) {
		cert, err := tls.X509KeyPair(data[0], data[1])
		return &cert, err
	}, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	warnOfReaders(keyFile, log)
	return &fileCert{file: w}, nil
}

func (c *fileCert) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			cert, _ := c.file.get() // an unusable file keeps the previous certificate
			return cert, nil
		},
	}
}
