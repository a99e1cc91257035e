// Package atomicfile replaces files atomically: a reader, or a process after a crash,
// finds either the complete old content or the complete new content.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Suffix is added to the path of a file to get the path of the temporary file to which Write
// first writes the new content. A crash may leave the temporary file behind; the next Write
// replaces it.
const Suffix = ".new"

// Durability is the kind of failure that a written file survives.
type Durability int

const (
	// Process keeps the file complete if the process ends during Write. After a power
	// failure the file may have the old content or be empty.
	Process Durability = iota
	// Durable also writes the new file to disk before Write returns, so that the file
	// survives a power failure.
	Durable
)

// Write replaces the file at path with a file that only its owner can read and write. The
// folder must exist. Callers must not call Write concurrently for the same path.
func Write(path string, text []byte, survives Durability) error {
	next := path + Suffix
	err := writeFile(next, text, survives)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		if gone := os.Remove(next); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	}
	if survives == Durable {
		return SyncFolder(filepath.Dir(path))
	}
	return nil
}

func writeFile(path string, text []byte, survives Durability) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && survives != Process {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncFolder writes the entries of a folder to disk. It does nothing on systems that do
// not support this.
func SyncFolder(path string) (err error) {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}
