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
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/safeopen"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// The names of the Runner's files in a pod's directory. Volumes and user IDs
// have other files in that directory.
const (
	hostsFile        = "etc-hosts"
	containersFolder = "containers"
)

// podRoot returns the parent of the pods' directories.
func (r *Runner) podRoot() string { return filepath.Join(r.cfg.RootDir, "pods") }

// writeHosts writes the pod's hosts file and returns its path, or "" if the pod
// has no hosts file. It writes the file only if the content changes. It does
// not replace the file, because containers have mounted the file.
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
	same, err := fileEquals(folder, hostsFile, text)
	if err != nil {
		return "", fmt.Errorf("write hosts file: %w", err)
	}
	if !same {
		if err := folder.WriteFile(hostsFile, text, 0o644); err != nil {
			return "", fmt.Errorf("write hosts file: %w", err)
		}
		if err := folder.Chmod(hostsFile, 0o644); err != nil { // independent of the umask
			return "", fmt.Errorf("write hosts file: %w", err)
		}
	}
	return filepath.Join(r.podRoot(), string(pod.UID), hostsFile), nil
}

// fileEquals reports whether a file contains exactly the given text. Containers
// can write to the file, so fileEquals reads at most one byte more than the
// text has.
func fileEquals(root *os.Root, file string, text []byte) (_ bool, err error) {
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

// release releases what was prepared for a stopped pod, in this order: its
// records, its sub-path mounts, its volumes, its cgroup, and its user IDs. The
// user IDs are last, because the files and processes of the pod belong to them
// until then. After an error, the next cleanup of the pod repeats all steps.
// The caller holds the pod's lock in r.clean.
func (r *Runner) release(ctx context.Context, uid types.UID) error {
	r.forgetEnforced(uid)
	if err := r.deleteRecords(ctx, uid, terminationRecordName, enforcedRecordName, replacedRecordName); err != nil {
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
		// Remove fails until the processes that it has killed have left the
		// cgroup.
		if err := r.cfg.PodCgroups.Remove(ctx, uid); err != nil {
			return &podworker.TransientError{Err: err}
		}
	}
	if r.cfg.UserIDs != nil {
		return r.cfg.UserIDs.Release(uid)
	}
	return nil
}

// removeFiles removes the Runner's files with the given names from the pod's
// directory. It then removes the directory if the directory is empty.
func (r *Runner) removeFiles(uid types.UID, names ...string) (err error) {
	if r.cfg.RootDir == "" || uid == "" {
		return nil
	}
	if err := checkFolders(string(uid)); err != nil {
		return fmt.Errorf("remove files of a pod: %w", err)
	}
	path := filepath.Join(r.podRoot(), string(uid))
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return fmt.Errorf("remove files of a pod: %w", err)
	}
	folder, err := safeopen.Root(path)
	if err != nil {
		return fmt.Errorf("remove files of a pod: %w", err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	for _, name := range names {
		if err := folder.RemoveAll(name); err != nil {
			return fmt.Errorf("remove files of a pod: %w", err)
		}
	}
	// Remove fails if the directory has files that do not belong to the Runner.
	_ = os.Remove(path)
	return nil
}

// Leftovers returns the pods that have files on the node, sorted by UID. After
// a restart of the agent, call [Runner.RemovePod] for each of these pods that
// should not run and is not in the runtime.
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
			return nil, fmt.Errorf("list the directories of pods: %w", err)
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
