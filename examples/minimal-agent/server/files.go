package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// recheckPeriod is how soon after a look at a file there is another: files are
	// looked at when somebody asks, and many may.
	recheckPeriod = time.Second
	// maxFileBytes is more than any certificate or token has.
	maxFileBytes = 1 << 20
)

// watched is what some files say that are read anew when they have changed.
type watched[T any] struct {
	paths []string
	parse func(data ...[]byte) (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo
	looked time.Time
}

// watch reads the files for the first time.
func watch[T any](log *slog.Logger, parse func(...[]byte) (T, error), paths ...string) (*watched[T], error) {
	w := &watched[T]{paths: paths, parse: parse, log: log, seen: make([]os.FileInfo, len(paths)), looked: time.Now()}
	return w, w.read()
}

// get returns what the files say. If they are unusable now that is what they said
// before: a certificate may be half written.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.looked) >= recheckPeriod {
		w.looked = now
		if w.changed() {
			if err := w.read(); err != nil {
				w.log.Error("what was read before goes on being used", "err", err)
			}
		}
	}
	return w.value
}

func (w *watched[T]) changed() bool {
	for i, path := range w.paths {
		now, err := os.Stat(path)
		was := w.seen[i]
		if err != nil || was == nil || !os.SameFile(now, was) || !now.ModTime().Equal(was.ModTime()) || now.Size() != was.Size() {
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
	w.value, w.seen = value, seen
	return nil
}

func readFile(path string) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, nil, fmt.Errorf("%s: want a file of at most %d bytes", path, maxFileBytes)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	return data, info, err
}

// fileCert is the certificate in two files, as it is now.
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
	return &fileCert{file: w}, nil
}

func (c *fileCert) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.file.get(), nil },
	}
}
