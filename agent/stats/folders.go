package stats

import (
	"errors"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// podFolders has the names of the pods' folders in NodePath and of the pods' log folders in
// LogPath, each from the last successful listing.
type podFolders struct {
	pods, logs []string
}

// list lists both directories again. If listing a directory fails, the previous names stay.
func (f *podFolders) list(cfg Config) error {
	return errors.Join(
		listFolders(filepath.Join(cfg.NodePath, "pods"), &f.pods),
		listFolders(cfg.LogPath, &f.logs),
	)
}

func listFolders(dir string, names *[]string) error {
	all, err := entries(dir)
	if err != nil {
		return err
	}
	*names = (*names)[:0]
	for _, e := range all {
		if e.IsDir() {
			*names = append(*names, e.Name())
		}
	}
	return nil
}

// byPod returns the UID of each pod with a folder in NodePath or LogPath, with the paths of the
// pod's log folders.
func (f *podFolders) byPod(cfg Config) map[types.UID][]string {
	byPod := make(map[types.UID][]string, len(f.pods))
	for _, name := range f.pods {
		byPod[types.UID(name)] = nil
	}
	for _, name := range f.logs {
		parts := strings.Split(name, "_") // namespaces and names don't contain underscores
		if len(parts) != 3 || strings.Trim(parts[2], ".") == "" {
			continue // not the log folder of a pod
		}
		uid := types.UID(parts[2])
		byPod[uid] = append(byPod[uid], filepath.Join(cfg.LogPath, name))
	}
	return byPod
}
