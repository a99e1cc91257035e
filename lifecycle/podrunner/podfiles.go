package podrunner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/safeopen"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// What the Runner keeps in a pod's folder, besides what volumes and user IDs have
// there.
const (
	hostsFile        = "etc-hosts"
	containersFolder = "containers"
)

// podRoot is the folder of the pods' folders.
func (r *Runner) podRoot() string { return filepath.Join(r.cfg.RootDir, "pods") }

// writeHosts writes the pod's hosts file and returns its path, empty where there
// is none. It is written in place, and only if it changes: containers have it
// mounted.
func (r *Runner) writeHosts(pod *corev1.Pod, ips []string, node Node) (path string, err error) {
	if r.cfg.RootDir == "" || pod.Spec.HostNetwork && node.HostsFile == nil && len(pod.Spec.HostAliases) == 0 {
		return "", nil
	}
	text, err := EtcHosts(pod, ips, node)
	if err != nil || text == nil {
		return "", err
	}
	folder, err := makeAndOpen(r.podRoot(), 0o750, string(pod.UID))
	if err != nil {
		return "", fmt.Errorf("write hosts file: %w", err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	same, err := holds(folder, hostsFile, text)
	if err != nil {
		return "", fmt.Errorf("write hosts file: %w", err)
	}
	if !same {
		if err := folder.WriteFile(hostsFile, text, 0o644); err != nil {
			return "", fmt.Errorf("write hosts file: %w", err)
		}
		if err := folder.Chmod(hostsFile, 0o644); err != nil { // whatever the umask is
			return "", fmt.Errorf("write hosts file: %w", err)
		}
	}
	return filepath.Join(r.podRoot(), string(pod.UID), hostsFile), nil
}

// holds reports whether a file has exactly this text. Containers can write to it: no more
// of it is read than the text is long.
func holds(root *os.Root, file string, text []byte) (_ bool, err error) {
	f, err := safeopen.File(root, file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	old, err := io.ReadAll(io.LimitReader(f, int64(len(text))+1))
	return bytes.Equal(old, text), err
}

// giveBack takes away what was prepared for a pod of which nothing runs: the records
// of its end and of its resources, its volumes, after the parts of them that are bound
// elsewhere, its cgroup, and its user IDs, after the files and processes that are theirs.
// All can be repeated, and are until they succeed. Callers hold the pod's lock of r.clean.
func (r *Runner) giveBack(ctx context.Context, uid types.UID) error {
	r.dropEnforced(uid)
	if err := r.deleteRecords(ctx, uid, endRecordName, enforcedRecordName); err != nil {
		return err
	}
	// Whatever has the place of a record, and the records of an agent that had them
	// below RootDir although its State is elsewhere now.
	if err := r.removeFiles(uid, endRecordName, endRecordName+".new", enforcedRecordName, enforcedRecordName+".new"); err != nil {
		return err
	}
	if r.cfg.RootDir != "" {
		parts, err := SubPathsOf(r.podRoot(), uid)
		if err == nil {
			err = parts.Clean()
		}
		if err != nil {
			return err
		}
	}
	if r.cfg.Volumes != nil {
		if err := r.cfg.Volumes.Unmount(ctx, uid); err != nil {
			return err
		}
	}
	if r.cfg.PodCgroups != nil {
		// Processes that were killed take a moment to leave their cgroup.
		if err := r.cfg.PodCgroups.Remove(ctx, uid); err != nil {
			return &podworker.TransientError{Err: err}
		}
	}
	if r.cfg.UserIDs != nil {
		return r.cfg.UserIDs.Release(uid)
	}
	return nil
}

// removeFiles removes what the Runner keeps in the pod's folder under these names,
// and the folder if that was all.
func (r *Runner) removeFiles(uid types.UID, names ...string) (err error) {
	if r.cfg.RootDir == "" || uid == "" {
		return nil
	}
	if err := checkFolders(string(uid)); err != nil {
		return fmt.Errorf("remove files: %w", err)
	}
	root, err := os.OpenRoot(r.podRoot())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove files: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, name := range names {
		if err := root.RemoveAll(filepath.Join(string(uid), name)); err != nil {
			return fmt.Errorf("remove files: %w", err)
		}
	}
	// What else is in it is somebody else's to remove.
	_ = root.Remove(string(uid))
	return nil
}

// Leftovers returns the pods that have something on the node's disk, sorted.
// After a restart of the agent those that nobody wants and the runtime does not
// know can be given to [Runner.RemovePod].
func (r *Runner) Leftovers() ([]types.UID, error) {
	var uids []types.UID
	if r.cfg.Volumes != nil {
		var err error
		if uids, err = r.cfg.Volumes.Pods(); err != nil {
			return nil, err
		}
	}
	if r.cfg.RootDir != "" {
		entries, err := os.ReadDir(r.podRoot())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				uids = append(uids, types.UID(e.Name()))
			}
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}
