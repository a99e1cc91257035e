package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// The kubelet's directories: pods/UID/volumes/PLUGIN/NAME.
const (
	podsDir    = "pods"
	volumesDir = "volumes"
)

// folderName returns the name of the directory of a plugin's volumes, as in the
// kubelet.
func folderName(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// folderOf returns the path of a volume's directory below the root.
func folderOf(uid types.UID, plugin, volume string) string {
	return path.Join(podsDir, string(uid), volumesDir, folderName(plugin), volume)
}

// path returns the absolute path of a directory below the root.
func (m *Manager) path(dir string) string {
	return filepath.Join(m.cfg.Root, filepath.FromSlash(dir))
}

// ref returns the Ref of the volume in a directory below the root.
func (m *Manager) ref(uid types.UID, dir string) Ref {
	return Ref{PodUID: uid, Volume: path.Base(dir), Dir: m.path(dir)}
}

// A pluginFolder is the directory of a plugin's volumes in a pod's directory.
type pluginFolder struct {
	name    string // of the plugin
	plugin  Plugin // nil if the plugin is unknown
	dir     string // path below the root
	isDir   bool
	volumes []string // directories of the volumes, below the root
}

// empty reports whether f can be removed without removing data.
func (f pluginFolder) empty() bool { return f.isDir && len(f.volumes) == 0 }

// folders returns a pod's plugin directories with their volumes. If a plugin's
// directory is replaced by a link or a file, folders returns it without
// volumes, because a link may lead out of the pod's directory.
func (m *Manager) folders(root *os.Root, uid types.UID) (folders []pluginFolder, err error) {
	dir := path.Join(podsDir, string(uid), volumesDir)
	all, err := openFolder(root, dir)
	if all == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	plugins, err := safeopen.ReadDir(all, ".")
	if err != nil {
		return nil, removed(err)
	}
	for _, p := range plugins {
		f := pluginFolder{name: strings.ReplaceAll(p.Name(), "~", "/"), plugin: m.byFolder[p.Name()], dir: path.Join(dir, p.Name()), isDir: p.IsDir()}
		volumes, err := names(all, p.Name())
		if err != nil {
			return nil, err
		}
		for _, name := range volumes {
			f.volumes = append(f.volumes, path.Join(f.dir, name))
		}
		folders = append(folders, f)
	}
	return folders, nil
}

func isFolder(root *os.Root, dir string) bool {
	info, err := root.Lstat(dir)
	return err == nil && info.IsDir()
}

// openFolder opens a directory. It returns nil if dir is not a directory. The
// caller closes the directory.
func openFolder(root *os.Root, dir string) (*os.Root, error) {
	folder, err := safeopen.Folder(root, dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return folder, err
}

// names returns the sorted names in a directory. It returns nil if dir is not a
// directory.
func names(root *os.Root, dir string) (found []string, err error) {
	folder, err := openFolder(root, dir)
	if folder == nil {
		return nil, err
	}
	found, err = safeopen.ReadNames(folder, ".")
	return found, errors.Join(removed(err), folder.Close())
}
