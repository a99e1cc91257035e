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
	// recheckPeriod is the minimum time between two checks of a file. Requests trigger
	// checks, and there may be many requests.
	recheckPeriod = time.Second
	// maxFileBytes is more than the size of any certificate or token.
	maxFileBytes = 1 << 20
)

// watched is a value that is parsed from files, again when they have changed.
type watched[T any] struct {
	paths []string
	parse func(data ...[]byte) (T, error)
	log   *slog.Logger
	// lapses reports that unusable files have no value. Otherwise the previous value stays,
	// because a certificate may be half written.
	lapses bool
	value  atomic.Pointer[T] // nil: no value

	// looking is held while the files are checked. Other requests use the previous value, so
	// that they do not wait for a slow disk.
	looking sync.Mutex
	seen    []os.FileInfo
	looked  time.Time
	told    string // the last problem that was logged
}

// watch reads the files for the first time.
func watch[T any](log *slog.Logger, parse func(...[]byte) (T, error), paths ...string) (*watched[T], error) {
	w := &watched[T]{paths: paths, parse: parse, log: log, seen: make([]os.FileInfo, len(paths)), looked: clock.RealClock{}.Now()}
	return w, w.read()
}

// get returns the value, and false if there is none.
func (w *watched[T]) get() (value T, ok bool) {
	if w.looking.TryLock() {
		w.look(clock.RealClock{}.Now())
		w.looking.Unlock()
	}
	if p := w.value.Load(); p != nil {
		return *p, true
	}
	return value, false
}

// look reads the files if they have changed. Callers hold looking.
func (w *watched[T]) look(now time.Time) {
	if now.Sub(w.looked) < recheckPeriod {
		return
	}
	w.looked = now
	if w.told == "" && !w.changed() {
		return
	}
	before, problem := w.told, ""
	if err := w.read(); err != nil {
		problem = err.Error()
	}
	w.told = problem
	switch {
	case problem == before:
	case problem == "":
		w.log.Info("the files are usable again", "files", w.paths)
	case !w.lapses:
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

// warnOfReaders logs a warning if all users of this machine may read a secret.
func warnOfReaders(path string, log *slog.Logger) {
	if runtime.GOOS == "windows" {
		return // the mode has no permissions
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
		log.Warn("the file is readable by all users", "file", path, "mode", info.Mode().Perm().String())
	}
}

// readFile reads a regular file. It does not block on a pipe. It follows links, because the files
// of a mounted Secret are links.
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
		return nil, nil, fmt.Errorf("%s: want a regular file of at most %d bytes", path, maxFileBytes)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	return data, info, err
}

// fileCert is the certificate that two files have now.
type fileCert struct {
	file *watched[*tls.Certificate]
}

func newFileCert(certFile, keyFile string, log *slog.Logger) (*fileCert, error) {
	w, err := watch(log, func(data ...[]byte) (*tls.Certificate, error) {
		cert, err := tls.X509KeyPair(data[0], data[1])
		return &cert, err
	}, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	warnOfReaders(keyFile, log)
	return &fileCert{file: w}, nil
}

func (c *fileCert) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			cert, _ := c.file.get() // it keeps the previous one
			return cert, nil
		},
	}
}
