package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names in the top directory of a volume that is updated atomically, the same
// as in the kubelet. Files of the volume are links to files in dataLink.
// dataLink is a link to the directory of the current version.
const (
	dataLink    = "..data"
	dataLinkNew = "..data_tmp"
	versionForm = "..2006_01_02_15_04_05."
)

// writer replaces the contents of a volume atomically: a process that opens
// ..data sees the old or the new version, never a mix. After a crash, the
// volume has the old or the new version.
type writer struct {
	root  *os.Root // of the volume
	group *int64   // group that owns and may read the files, nil for none
	now   time.Time
}

// write replaces the contents of the volume with p, and reports whether the
// contents have changed.
func (w writer) write(p payload) (changed bool, err error) {
	if err := p.validate(); err != nil {
		return false, err
	}
	// If the link is missing or damaged, Readlink fails and version is empty.
	version, _ := w.root.Readlink(dataLink)
	if !w.hasContents(version, p) {
		changed = true
		if version, err = w.newVersion(p); err != nil {
			return false, err
		}
	}
	return changed, errors.Join(w.link(p), w.removeOld(version, p))
}

// newVersion writes p into a new directory, and makes dataLink point to this
// directory.
func (w writer) newVersion(p payload) (version string, err error) {
	version, err = w.makeFolder()
	if err != nil {
		return "", err
	}
	if err := w.fill(version, p); err != nil {
		return "", errors.Join(err, w.root.RemoveAll(version))
	}
	if err := w.root.RemoveAll(dataLinkNew); err != nil {
		return "", err
	}
	if err := w.root.Symlink(version, dataLinkNew); err != nil {
		return "", err
	}
	return version, w.root.Rename(dataLinkNew, dataLink)
}

// makeFolder creates a directory with a new name for a version.
func (w writer) makeFolder() (string, error) {
	for n := w.now.Nanosecond(); ; n++ {
		version := w.now.UTC().Format(versionForm) + strconv.Itoa(n)
		err := w.root.Mkdir(version, 0o700)
		if err == nil {
			err = w.setOwner(version, 0o755, nil)
		}
		if !errors.Is(err, fs.ErrExist) {
			return version, err
		}
	}
}

// fill writes the files of a version.
func (w writer) fill(version string, p payload) error {
	made := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if err := w.folders(version, path.Dir(name), made); err != nil {
			return err
		}
		f := p[name]
		at := path.Join(version, name)
		if err := w.root.WriteFile(at, f.data, 0o600); err != nil {
			return err
		}
		if err := w.setOwner(at, fs.FileMode(f.mode)&fs.ModePerm, f.uid); err != nil {
			return err
		}
	}
	return nil
}

// folders creates a directory in a version, and its parents.
func (w writer) folders(version, folder string, made map[string]bool) error {
	if made[folder] {
		return nil
	}
	made[folder] = true
	if err := w.folders(version, path.Dir(folder), made); err != nil {
		return err
	}
	at := path.Join(version, folder)
	if err := w.root.Mkdir(at, 0o755); err != nil {
		return err
	}
	return w.setOwner(at, 0o755, nil)
}

// setOwner sets the mode and owner of a new file or directory, whatever the
// umask is.
func (w writer) setOwner(name string, mode fs.FileMode, uid *int64) error {
	info, err := w.root.Lstat(name)
	if err != nil {
		return err
	}
	owner, group := -1, -1
	if uid != nil {
		owner = int(*uid)
	}
	if w.group != nil {
		group = int(*w.group)
	}
	if owner >= 0 || group >= 0 {
		if err := w.root.Lchown(name, owner, group); err != nil {
			return err
		}
	}
	// Set the mode after the owner, because a change of the owner clears the
	// set-group-ID bit.
	return w.root.Chmod(name, modeFor(mode, info.IsDir(), w.group))
}

// modeFor returns the mode of a file or directory in a volume that belongs to a
// group: the group may read, and new files in directories belong to the group.
// If group is nil, the mode does not change.
func modeFor(mode fs.FileMode, dir bool, group *int64) fs.FileMode {
	if group == nil {
		return mode
	}
	mode |= 0o440
	if dir {
		mode |= fs.ModeSetgid | 0o110
	}
	return mode
}

// hasContents reports whether a version has the contents of p, including modes
// and owners.
func (w writer) hasContents(version string, p payload) bool {
	if version == "" || strings.Contains(version, "/") || !strings.HasPrefix(version, "..") {
		return false
	}
	folder, err := w.root.OpenRoot(version)
	if err != nil {
		return false
	}
	defer func() { _ = folder.Close() }()
	found := 0
	err = fs.WalkDir(folder.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found++
		f, ok := p[name]
		if !ok || !w.isFile(folder, name, f) {
			return fs.ErrInvalid
		}
		return nil
	})
	return err == nil && found == len(p)
}

func (w writer) isFile(folder *os.Root, name string, f file) bool {
	info, err := folder.Lstat(name)
	if err != nil || info.Mode() != modeFor(fs.FileMode(f.mode)&fs.ModePerm, false, w.group) {
		return false
	}
	uid, gid := ownerOf(info)
	if f.uid != nil && uid != int(*f.uid) || w.group != nil && gid != int(*w.group) {
		return false
	}
	data, err := folder.ReadFile(name)
	return err == nil && bytes.Equal(data, f.data)
}

// link creates the missing links in the volume's top directory, and replaces
// wrong links.
func (w writer) link(p payload) error {
	for top := range tops(p) {
		target := path.Join(dataLink, top)
		if now, err := w.root.Readlink(top); err == nil && now == target {
			continue
		}
		if err := w.root.RemoveAll(top); err != nil {
			return err
		}
		if err := w.root.Symlink(target, top); err != nil {
			return err
		}
	}
	return nil
}

// removeOld removes everything that is not part of p: links and old versions.
func (w writer) removeOld(version string, p payload) error {
	all, err := fs.ReadDir(w.root.FS(), ".")
	errs := []error{err}
	keep := tops(p)
	for _, entry := range all {
		if name := entry.Name(); !keep[name] && name != dataLink && name != version {
			errs = append(errs, w.root.RemoveAll(name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove old versions of the volume: %w", err)
	}
	return nil
}

// tops returns the names of p's files and directories in the volume's top
// directory.
func tops(p payload) map[string]bool {
	names := map[string]bool{}
	for name := range p {
		top, _, _ := strings.Cut(name, "/")
		names[top] = true
	}
	return names
}
