package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/kubeparts/kubeparts/internal/atomicfile"
	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// FileStore is a [Store] in a folder. The key of a value is the path of a file, relative to the
// folder. Create a FileStore with [Files].
//
// Only the owner of the files can read the values. Put creates folders as needed. When
// Delete removes the last value in a folder, it also removes the folder, unless the folder is
// directly in the store's folder.
type FileStore struct {
	dir  string
	seed maphash.Seed
	// busy has the locks of writers. Several keys share a lock: see the method lock.
	busy [64]sync.Mutex
}

var _ Store = (*FileStore)(nil)

// Files returns a store in the folder dir, which need not exist yet. Files does not access the
// disk. Two stores do not coordinate their writes, so a folder must have only one store.
func Files(dir string) *FileStore { return &FileStore{dir: dir, seed: maphash.MakeSeed()} }

// Get reads the file of a key. It returns an error if the file is not a regular file.
func (f *FileStore) Get(_ context.Context, key string) (value []byte, err error) {
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("state: get: %w", err)
	}
	defer func() { err = f.wrap("get", key, err) }()
	path, name := cut(key)
	folder, err := f.folder(path)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, name)
	info, err := os.Lstat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, safeopen.ErrNotRegular
	}
	return os.ReadFile(file)
}

// folder returns the folder at a path below the store's folder. It returns an error if any
// element of the path is a link or not a folder. The check stays valid after the call, because no
// other process writes to the store's folder.
func (f *FileStore) folder(path string) (string, error) {
	if path == "" {
		_, err := os.Stat(f.dir)
		return f.dir, err
	}
	folder := f.dir
	for name := range strings.SplitSeq(path, "/") {
		folder = filepath.Join(folder, name)
		info, err := os.Lstat(folder)
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: folder, Err: syscall.ENOTDIR}
		}
		if err != nil {
			return "", err
		}
	}
	return folder, nil
}

// Put replaces the file of a key. It also replaces an empty folder at the path of the file. The
// file is on the disk when Put has returned.
func (f *FileStore) Put(_ context.Context, key string, value []byte) error {
	return f.put(key, value, atomicfile.Durable)
}

// PutUnsynced does the same as Put, but does not wait for the disk. After a power failure, the
// file may be old or empty.
func (f *FileStore) PutUnsynced(_ context.Context, key string, value []byte) error {
	return f.put(key, value, atomicfile.Process)
}

// maxRaces is the maximum number of attempts of a put. An attempt fails if a concurrent Delete
// removes the folder before the file is created in it.
const maxRaces = 10

func (f *FileStore) put(key string, value []byte, survives atomicfile.Durability) (err error) {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("state: put: %w", err)
	}
	defer f.lock(key)()
	for range maxRaces {
		if err = f.write(key, value, survives); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return f.wrap("put", key, err)
}

func (f *FileStore) write(key string, value []byte, survives atomicfile.Durability) error {
	path, name := cut(key)
	folder, err := f.folder(path)
	if errors.Is(err, fs.ErrNotExist) {
		folder, err = f.makeFolder(path, survives)
	}
	if err != nil {
		return err
	}
	file := filepath.Join(folder, name)
	err = atomicfile.Write(file, value, survives)
	if errors.Is(err, fs.ErrExist) && os.Remove(file) == nil { // file was an empty folder
		err = atomicfile.Write(file, value, survives)
	}
	return err
}

// makeFolder creates the store's folder and the missing folders of a path below it.
func (f *FileStore) makeFolder(path string, survives atomicfile.Durability) (string, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", err
	}
	parent := f.dir
	for name := range strings.SplitSeq(path, "/") {
		folder := filepath.Join(parent, name)
		err := os.Mkdir(folder, 0o750)
		if err == nil && survives == atomicfile.Durable {
			err = atomicfile.SyncFolder(parent)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		parent = folder
	}
	return f.folder(path)
}

// Delete removes the file of a key, the remains of an interrupted Put, and folders that become
// empty, except folders directly in the store's folder. If the path of the key is a folder, Delete
// does not remove the folder, because a folder is not a value.
func (f *FileStore) Delete(_ context.Context, key string) (err error) {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("state: delete: %w", err)
	}
	defer f.lock(key)()
	defer func() { err = f.wrap("delete", key, err) }()
	path, name := cut(key)
	if err := f.remove(path, name, name+atomicfile.Suffix); err != nil {
		return err
	}
	for strings.Contains(path, "/") {
		// Remove fails if the folder is not empty. A concurrent Put creates the folder again if
		// it is missing.
		if os.Remove(filepath.Join(f.dir, local(path))) != nil {
			break
		}
		path, _ = cut(path)
	}
	return nil
}

// remove deletes the files with the given names in a folder. It does not delete folders with the
// given names.
func (f *FileStore) remove(path string, names ...string) error {
	folder, err := f.folder(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		file := filepath.Join(folder, name)
		info, err := os.Lstat(file)
		if err == nil && !info.IsDir() {
			err = os.Remove(file)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Keys returns the keys that start with prefix, sorted. The part of prefix before its last slash
// is a folder. Keys also removes the remains of interrupted Puts that are directly in this
// folder, because this folder belongs to the caller. Folders below it may belong to other
// packages. Keys also returns the paths of files that are not regular, for which Get returns an
// error.
func (f *FileStore) Keys(_ context.Context, prefix string) (keys []string, err error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, fmt.Errorf("state: keys: %w", err)
	}
	defer func() { err = f.wrap("list keys of", prefix, err) }()
	root, err := safeopen.Root(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	folder, _ := cut(prefix)
	keys, err = walk(root, folder, prefix)
	values := keys[:0]
	for _, key := range keys {
		interrupted, isInterrupted := strings.CutSuffix(key, atomicfile.Suffix)
		if at, _ := cut(key); isInterrupted && at == folder {
			err = errors.Join(err, f.clear(interrupted))
		}
		if checkKey(key) == nil && strings.HasPrefix(key, prefix) {
			values = append(values, key)
		}
	}
	slices.Sort(values)
	return values, err
}

// walk returns the paths of all files in a folder of root, and in those subfolders that may have
// keys with the prefix. Not every path is such a key. walk joins the errors of all folders that
// could not be read.
func walk(root *os.Root, folder, prefix string) (paths []string, err error) {
	entries, err := safeopen.ReadDir(root, local(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, entry := range entries {
		path := strings.TrimPrefix(folder+"/"+entry.Name(), "/")
		if !entry.IsDir() {
			paths = append(paths, path)
			continue
		}
		if strings.HasPrefix(path+"/", prefix) && checkKey(path) == nil {
			below, err := walk(root, path, prefix)
			paths, errs = append(paths, below...), append(errs, err)
		}
	}
	return paths, errors.Join(errs...)
}

// clear removes the remains of an interrupted Put of a key. It holds the lock of the key, so
// that no Put of the key is running.
func (f *FileStore) clear(key string) error {
	defer f.lock(key)()
	path, name := cut(key)
	return f.remove(path, name+atomicfile.Suffix)
}

// local returns the path of a key or a folder in the form of the operating system.
func local(path string) string { return filepath.FromSlash(cmp.Or(path, ".")) }

// lock excludes other writers of a key until unlock is called.
func (f *FileStore) lock(key string) (unlock func()) {
	mu := &f.busy[maphash.String(f.seed, key)%uint64(len(f.busy))]
	mu.Lock()
	return mu.Unlock
}

// wrap adds the action, the key and the folder to an error.
func (f *FileStore) wrap(action, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("state: %s %s in %s: %w", action, key, f.dir, err)
}
