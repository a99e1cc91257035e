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
	// Durable has the new file on disk when Write returns.
	Durable
)

// Write replaces the file at path, in a folder that exists, with one that only its owner
// can read and write. The caller writes one path at a time.
func Write(path string, text []byte, survives Durability) (err error) {
	folder, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	return WriteIn(folder, filepath.Base(path), text, survives)
}

// WriteIn is Write for the file of this name in folder.
func WriteIn(folder *os.Root, name string, text []byte, survives Durability) error {
	next := name + Suffix
	err := writeFile(folder, next, text, survives)
	if err == nil {
		err = folder.Rename(next, name)
	}
	if err != nil {
		if gone := folder.Remove(next); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	}
	if survives == Durable {
		return SyncFolder(folder)
	}
	return nil
}

func writeFile(folder *os.Root, name string, text []byte, survives Durability) error {
	f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && survives != Process {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncFolder has the entries of a folder on disk, on systems that can do so.
func SyncFolder(folder *os.Root) (err error) {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := folder.Open(".")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}
