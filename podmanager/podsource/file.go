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

// MaxManifestBytes is the size from which on a file is refused without being read:
// more than the API server would take.
const MaxManifestBytes = 1 << 20

// MaxPods is how many pods a source gives at most, far more than a node can run.
// Those after them, in the order of the source, are left out and are a [Problem].
const MaxPods = 1000

// settleTime is how long a file must look the same before it is not read any more. A
// file that is written twice within a tick of its clock looks as it did after the
// first time, and the clocks of some file systems tick every two seconds.
const settleTime = 2 * time.Second

// file is what is known of one file. It never changes.
type file struct {
	// info is how the file looked when it was read last; nil if it has become
	// something since that cannot be read.
	info os.FileInfo
	// since is when it was first seen to look so.
	since time.Time
	// settled says that it was read when it had looked so for settleTime.
	settled bool
	sum     [sha256.Size]byte
	// manifests are the last good ones: a slip of the pen does not end a pod.
	manifests []manifest
	problems  []Problem
}

// manifestNames returns the names in a folder that are those of manifests, sorted.
// The rest are somebody else's: editors' temporary files, the hidden folders of a
// mounted ConfigMap, a README.
func manifestNames(path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if isManifestName(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func isManifestName(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	default:
		return false
	}
}

// look returns what the file at path is now, and whether it was opened. The result is
// old itself if nothing has changed, and nil if there is no such file, or a folder in
// its place.
func look(path string, old *file, of origin, now time.Time) (f *file, opened bool) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err != nil {
			return nil, false // removed since it was listed
		}
		return refuse(path, old, errors.New("symbolic link to nothing")), false
	case err != nil:
		return refuse(path, old, withoutPath(err)), false
	case info.IsDir():
		return nil, false
	case old != nil && old.settled && looksLike(info, old.info):
		return old, false
	}
	if err := checkInfo(info); err != nil {
		return refuse(path, old, err), false
	}
	data, info, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true
	case err != nil:
		return refuse(path, old, withoutPath(err)), true
	}
	f = &file{info: info, since: now, sum: sha256.Sum256(data)}
	if old != nil && looksLike(info, old.info) {
		f.since = old.since
		f.settled = now.Sub(old.since) >= settleTime
	}
	f.parse(path, data, old, of)
	return f, true
}

// parse fills in what the content of f is, which may be that of old.
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

// refuse returns a file that has become one that cannot be read.
func refuse(path string, old *file, err error) *file {
	f := &file{problems: []Problem{{File: path, Err: err}}}
	if old == nil {
		return f
	}
	if added, gone := compareProblems(old.problems, f.problems); old.info == nil && len(added)+len(gone) == 0 {
		return old
	}
	f.manifests = old.manifests
	return f
}

func looksLike(a, b os.FileInfo) bool {
	return b != nil && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// checkInfo says why a file must not be read.
func checkInfo(info os.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("not a regular file (mode %v)", info.Mode())
	case info.Size() > MaxManifestBytes:
		return fmt.Errorf("the file has %d bytes, at most %d are allowed", info.Size(), MaxManifestBytes)
	}
	return nil
}

// read returns a file's content, and how it looked before that was read. The file may
// not be any more what it was when somebody looked: a pipe must not block, nor may a
// file that grows fill the memory.
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
		err = fmt.Errorf("the file grows beyond %d bytes", MaxManifestBytes)
	}
	return data, info, err
}

// openFile opens what may be a pipe by now, for which it does not wait.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// withoutPath removes the path from an error of package os: a Problem has it.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// chosen is what all files together give.
type chosen struct {
	pods     []manifest
	objects  []metav1.Object
	problems []Problem
}

// choose returns what the files give, and what is wrong with them. Of two manifests
// for one pod or one object the first one counts, and the other is a problem; so are
// the pods after the first MaxPods.
func choose(files []*file) (c chosen) {
	names := make(map[string]manifest)
	uids := make(map[types.UID]manifest)
	var surplus []manifest
	for _, f := range files {
		c.problems = append(c.problems, f.problems...)
		for _, m := range f.manifests {
			name := m.name()
			var errs fieldErrors
			if first, taken := names[m.kind()+name]; taken {
				errs = append(errs, duplicate(field.NewPath("metadata", "name"), name, first))
			}
			if first, taken := uids[m.uid()]; taken && m.ownUID() {
				errs = append(errs, duplicate(field.NewPath("metadata", "uid"), string(m.uid()), first))
			}
			if errs != nil {
				c.problems = append(c.problems, Problem{File: m.file, Document: m.document, Err: errs})
				continue
			}
			names[m.kind()+name] = m
			if m.pod == nil {
				c.objects = append(c.objects, m.object)
				continue
			}
			uids[m.pod.UID] = m
			if len(c.pods) == MaxPods {
				surplus = append(surplus, m)
				continue
			}
			c.pods = append(c.pods, m)
		}
	}
	if len(surplus) > 0 {
		first := surplus[0]
		c.problems = append(c.problems, Problem{File: first.file, Document: first.document, Err: fmt.Errorf(
			"a source may give %d pods: pod %s and all after it, %d in all, are left out", MaxPods, first.name(), len(surplus))})
	}
	c.problems = slices.Clip(c.problems)
	return c
}

func duplicate(at *field.Path, value string, first manifest) *field.Error {
	err := field.Duplicate(at, value)
	err.Detail = fmt.Sprintf("%s, document %d, comes first", first.file, first.document)
	return err
}
