// Package atomicfile replaces files as a whole: a reader, or the next process after a
// crash, finds the old text or the new one.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Suffix follows the name of a file while its next text is written. A crash leaves a
// file of that name, which the next Write replaces.
const Suffix = ".new"

// Durability is what a file survives.
type Durability int

const (
	// Process keeps the file whole if the process ends. If the machine loses power, the
	// file may be old or empty.
	Process Durability = iota
	// Power keeps the file whole if the machine loses power. It may be the old one.
	Power
	// Durable has the new file on disk when Write returns.
	Durable
)

// Write replaces the file at path, in a folder that exists, with one that only its owner
// can read and write. The caller writes one path at a time.
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
		return syncFolder(filepath.Dir(path))
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

// syncFolder has the entries of a folder on disk, on systems that can do so.
func syncFolder(path string) (err error) {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if err := folder.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}
