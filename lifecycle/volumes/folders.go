package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

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
// directory is not a directory but a link or a file, folders returns it without
// volumes, because a link may lead out of the pod's directory.
func (m *Manager) folders(root *os.Root, uid types.UID) (folders []pluginFolder, err error) {
	pod := path.Join(podsDir, string(uid))
	if !isFolder(root, pod) {
		return nil, nil
	}
	all := path.Join(pod, volumesDir)
	plugins, err := entries(root, all)
	if err != nil {
		return nil, err
	}
	for _, p := range plugins {
		f := pluginFolder{name: strings.ReplaceAll(p.Name(), "~", "/"), plugin: m.byFolder[p.Name()], dir: path.Join(all, p.Name()), isDir: p.IsDir()}
		volumes, err := entries(root, f.dir)
		if err != nil {
			return nil, err
		}
		for _, v := range volumes {
			f.volumes = append(f.volumes, path.Join(f.dir, v.Name()))
		}
		folders = append(folders, f)
	}
	return folders, nil
}

func isFolder(root *os.Root, dir string) bool {
	info, err := root.Lstat(dir)
	return err == nil && info.IsDir()
}

// entries returns the entries of a directory. It returns nil if dir is not a
// directory.
func entries(root *os.Root, dir string) ([]fs.DirEntry, error) {
	if !isFolder(root, dir) {
		return nil, nil
	}
	folder, err := safeopen.Folder(root, dir)
	if err != nil {
		return nil, removed(err)
	}
	found, err := fs.ReadDir(folder.FS(), ".")
	return found, errors.Join(removed(err), folder.Close())
}
