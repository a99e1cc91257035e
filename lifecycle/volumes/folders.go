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

// The kubelet's folders: pods/UID/volumes/PLUGIN/NAME.
const (
	podsDir    = "pods"
	volumesDir = "volumes"
)

// folderName is what the folder of a plugin's volumes is called, as in the kubelet.
func folderName(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// folderOf is where a volume is below the root.
func folderOf(uid types.UID, plugin, volume string) string {
	return path.Join(podsDir, string(uid), volumesDir, folderName(plugin), volume)
}

// path returns where a folder below the root is.
func (m *Manager) path(dir string) string {
	return filepath.Join(m.cfg.Root, filepath.FromSlash(dir))
}

// ref names the volume in a folder below the root.
func (m *Manager) ref(uid types.UID, dir string) Ref {
	return Ref{PodUID: uid, Volume: path.Base(dir), Dir: m.path(dir)}
}

// A pluginFolder is the folder of a plugin's volumes in that of a pod.
type pluginFolder struct {
	name    string // of the plugin
	plugin  Plugin // nil if it is unknown
	dir     string // below the root
	isDir   bool
	volumes []string // their folders below the root
}

// empty reports whether removing f takes nothing of anybody.
func (f pluginFolder) empty() bool { return f.isDir && len(f.volumes) == 0 }

// folders lists a pod's volumes. What is in the place of a folder, a link for one, has
// none: it may lead to what is not the pod's.
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

// entries lists a folder. Anything else has no entries.
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
