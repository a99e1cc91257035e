package stats

import (
	"errors"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// podFolders are the names of the folders of pods, those in NodePath and those of logs,
// as they were when each of the two was last listed.
type podFolders struct {
	pods, logs []string
}

// list lists them anew. Of what can't be listed, the names before stay.
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

// byPod returns each pod that has a folder, with the folders of its logs.
func (f *podFolders) byPod(cfg Config) map[types.UID][]string {
	byPod := make(map[types.UID][]string, len(f.pods))
	for _, name := range f.pods {
		byPod[types.UID(name)] = nil
	}
	for _, name := range f.logs {
		parts := strings.Split(name, "_") // no namespace and no name has an underscore
		if len(parts) != 3 || strings.Trim(parts[2], ".") == "" {
			continue // it is no pod's
		}
		uid := types.UID(parts[2])
		byPod[uid] = append(byPod[uid], filepath.Join(cfg.LogPath, name))
	}
	return byPod
}
