package podsource

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxManifestBytes is the largest size of a file in bytes. Larger files are rejected
// without being read.
const MaxManifestBytes = 1 << 20

// MaxPods is the largest number of pods of a source, far more than a node can run. The pods
// after the first MaxPods, in the order of the source, are ignored and reported as a
// [Problem].
const MaxPods = 1000

// stableTime is how long the attributes of a file must stay the same before passes stop
// reading the file. Two writes within the resolution of the file system's timestamps may
// leave the same attributes. This resolution is two seconds on some file systems.
const stableTime = 2 * time.Second

// file is the result of reading one file. It is immutable.
type file struct {
	// info has the file's attributes at its last read; nil if the file can no longer be
	// read.
	info os.FileInfo
	// since is the time of the first read with these attributes.
	since time.Time
	// stable means that the last read was at least stableTime after the first read with these
	// attributes.
	stable bool
	sum    [sha256.Size]byte
	// manifests are the manifests of the last valid version of the file, so that a typing
	// error terminates no pod.
	manifests []manifest
	problems  []Problem
}

// manifestNames returns the sorted names of the manifests in a folder, and reports whether
// one of them is a symbolic link. It ignores all other entries, such as editors' temporary
// files, the hidden folders of a mounted ConfigMap, and a README.
func manifestNames(path string) (names []string, hasLinks bool, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, false, err
	}
	for _, e := range entries {
		if isManifestName(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
			hasLinks = hasLinks || e.Type()&fs.ModeSymlink != 0
		}
	}
	return names, hasLinks, nil
}

func isManifestName(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	default:
		return false
	}
}

// load returns the current state of the file at path, and reports whether it opened the
// file. If the file is stable and its attributes have not changed, load returns the
// previous state. If the path does not exist or is a folder, load returns nil.
func load(path string, old *file, of origin, now time.Time) (f *file, opened bool) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err != nil {
			return nil, false // removed since it was listed
		}
		return unreadable(path, old, errors.New("symbolic link to a file that does not exist")), false
	case err != nil:
		return unreadable(path, old, withoutPath(err)), false
	case info.IsDir():
		return nil, false
	case old != nil && old.stable && sameAttributes(info, old.info):
		return old, false
	}
	if err := checkInfo(info); err != nil {
		return unreadable(path, old, err), false
	}
	data, info, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true
	case err != nil:
		return unreadable(path, old, withoutPath(err)), true
	}
	f = &file{info: info, since: now, sum: sha256.Sum256(data)}
	if old != nil && sameAttributes(info, old.info) {
		f.since = old.since
		f.stable = now.Sub(old.since) >= stableTime
	}
	f.parse(path, data, old, of)
	return f, true
}

// parse sets the manifests and problems of f. If the content has not changed, it copies
// both from the previous state. If the content is invalid, it copies only the manifests of
// the previous state.
func (f *file) parse(path string, data []byte, old *file, of origin) {
	if old != nil && old.info != nil && old.sum == f.sum {
		f.manifests, f.problems = old.manifests, old.problems
		return
	}
	f.manifests, f.problems = decodeFile(path, data, of)
	if f.problems != nil && old != nil {
		f.manifests = old.manifests
	}
}

// unreadable returns the state of a file that cannot be read. It keeps the manifests of the
// previous state.
func unreadable(path string, old *file, err error) *file {
	f := &file{problems: []Problem{{File: path, Err: err}}}
	if old == nil {
		return f
	}
	if added, resolved := compareProblems(old.problems, f.problems); old.info == nil && len(added)+len(resolved) == 0 {
		return old
	}
	f.manifests = old.manifests
	return f
}

func sameAttributes(a, b os.FileInfo) bool {
	return b != nil && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// checkInfo returns an error if a file must not be read.
func checkInfo(info os.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("not a regular file (mode %v)", info.Mode())
	case info.Size() > MaxManifestBytes:
		return fmt.Errorf("the file has %d bytes, more than the limit of %d", info.Size(), MaxManifestBytes)
	}
	return nil
}

// read returns a file's content, and its attributes before the read. It checks the file
// again, because the file may have been replaced since the last check, for example by a pipe.
// It limits the size of the content, because the file may grow while it is read.
func read(path string) ([]byte, os.FileInfo, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := checkInfo(info); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxManifestBytes+1))
	if err == nil && len(data) > MaxManifestBytes {
		err = fmt.Errorf("the file grew beyond the limit of %d bytes while it was read", MaxManifestBytes)
	}
	return data, info, err
}

// openFile opens a file without blocking, because the file may have been replaced by a
// pipe.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// withoutPath removes the path from an error of package os, because the Problem contains it
// already.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// selection is the result of merging the manifests of all files.
type selection struct {
	pods     []manifest
	objects  []metav1.Object
	problems []Problem
}

// selectManifests returns the pods, objects and problems of the files. If two manifests
// define the same pod or object, the first manifest is used and the second is a problem.
// Pods after the first MaxPods are a problem too.
func selectManifests(files []*file) (c selection) {
	type name struct{ kind, namespace, name string }
	names := make(map[name]*manifest, len(files)) // most files have one manifest
	uids := make(map[types.UID]*manifest, len(files))
	c.pods = make([]manifest, 0, len(files))
	var surplus []manifest
	for _, f := range files {
		c.problems = append(c.problems, f.problems...)
		for i := range f.manifests {
			m := &f.manifests[i]
			key := name{m.kind(), m.meta().GetNamespace(), m.meta().GetName()}
			var errs fieldErrors
			if first, taken := names[key]; taken {
				errs = append(errs, duplicate(field.NewPath("metadata", "name"), m.name(), first))
			}
			if first, taken := uids[m.uid()]; taken && m.hasOwnUID() {
				errs = append(errs, duplicate(field.NewPath("metadata", "uid"), string(m.uid()), first))
			}
			if errs != nil {
				c.problems = append(c.problems, Problem{File: m.file, Document: m.document, Err: errs})
				continue
			}
			names[key] = m
			if m.pod == nil {
				c.objects = append(c.objects, m.object)
				continue
			}
			uids[m.pod.UID] = m
			if len(c.pods) == MaxPods {
				surplus = append(surplus, *m)
				continue
			}
			c.pods = append(c.pods, *m)
		}
	}
	if len(surplus) > 0 {
		first := surplus[0]
		c.problems = append(c.problems, Problem{File: first.file, Document: first.document, Err: fmt.Errorf(
			"a source may define at most %d pods: ignored pod %s and all later pods, %d in total", MaxPods, first.name(), len(surplus))})
	}
	c.problems = slices.Clip(c.problems)
	return c
}

func duplicate(at *field.Path, value string, first *manifest) *field.Error {
	err := field.Duplicate(at, value)
	err.Detail = fmt.Sprintf("already defined in %s, document %d", first.file, first.document)
	return err
}
