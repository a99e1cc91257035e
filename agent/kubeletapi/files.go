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
	// recheckPeriod is the minimum time between two checks of a file. A request only checks the
	// files if the last check is older than recheckPeriod.
	recheckPeriod = time.Second
	// maxFileBytes is the maximum size of a file, which is more than any certificate or token
	// needs.
	maxFileBytes = 1 << 20
)

// watched is a value that is parsed from files, and parsed again when the files have changed.
type watched[T any] struct {
	paths []string
	parse func(data ...[]byte) (T, error)
	log   *slog.Logger
	// deleteOnError reports whether the value is deleted while the files are unusable. If false,
	// the previous value stays in use, because a certificate file may be half written.
	deleteOnError bool
	value         atomic.Pointer[T] // nil: no value

	// The request that checks the files holds the mutex checking. All other requests use the
	// previous value meanwhile, so that they do not wait for a slow disk.
	checking    sync.Mutex
	seen        []os.FileInfo
	checkedAt   time.Time
	lastProblem string // the error of the last read; empty if it succeeded
}

// watch reads the files and returns the watched value.
func watch[T any](log *slog.Logger, parse func(...[]byte) (T, error), paths ...string) (*watched[T], error) {
	w := &watched[T]{paths: paths, parse: parse, log: log, seen: make([]os.FileInfo, len(paths)), checkedAt: clock.RealClock{}.Now()}
	return w, w.read()
}

// get returns the value. If the last check is older than recheckPeriod and no other request is
// checking the files, get first checks them. ok is false if the value is deleted.
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

// check reads the files if they have changed, or if the last read failed. It checks the files at
// most once in recheckPeriod. Callers hold the mutex checking.
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
		w.log.Info("could read the certificate or token files again", "files", w.paths)
	case !w.deleteOnError:
		w.log.Error("could not reload the certificates, the previous certificates stay in use", "files", w.paths, "err", problem)
	case before == "":
		w.value.Store(nil)
		w.log.Error("could not read the token file, the token that it had before is refused until the file can be read", "files", w.paths, "err", problem)
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

// warnOfReaders logs a warning if all users of this machine can read the secret file.
func warnOfReaders(path string, log *slog.Logger) {
	if runtime.GOOS == "windows" {
		return // file modes on Windows have no permissions of other users
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
		log.Warn("a secret file is readable by all users of this machine", "file", path, "mode", info.Mode().Perm().String())
	}
}

// readFile reads a regular file. It returns an error for a named pipe and does not block. It
// follows symbolic links, because the files of a mounted Secret are links.
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

// fileCert is the current certificate of a certificate file and a key file.
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

// get implements GetCertificate of [tls.Config].
func (c *fileCert) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, _ := c.file.get() // never deleted: see deleteOnError
	return cert, nil
}
