package podrunner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// LogDirectory returns the directory of the pod's container logs under root, in
// the kubelet's layout.
func LogDirectory(root string, pod *corev1.Pod) string {
	return filepath.Join(root, logFolder(pod.Namespace, pod.Name, pod.UID))
}

func logFolder(namespace, name string, uid types.UID) string {
	return strings.Join([]string{namespace, name, string(uid)}, "_")
}

// containerLogPath returns the path of a container's log, relative to the
// sandbox's log directory.
func containerLogPath(name string, attempt uint32) string {
	return filepath.Join(name, fmt.Sprintf("%d.log", attempt))
}

// makeLogs creates the pod's log directory and, below it, one directory level
// for each name. Names come from manifests, so makeLogs checks them. Pods may
// be able to write below LogRoot, so makeLogs follows no symbolic links there.
func (t *podSync) makeLogs(below ...string) error {
	if t.cfg.LogRoot == "" {
		return nil
	}
	names := append([]string{logFolder(t.pod.Namespace, t.pod.Name, t.pod.UID)}, below...)
	if err := makeFolders(t.cfg.LogRoot, 0o755, names...); err != nil {
		return fmt.Errorf("create log directory: %w", err)
	}
	return nil
}

// makeFolders creates root and, below it, one directory level for each name.
func makeFolders(root string, mode fs.FileMode, names ...string) error {
	folder, err := makeAndOpen(root, mode, names...)
	if err != nil {
		return err
	}
	return folder.Close()
}

// makeAndOpen creates root and, below it, one directory level for each name. It
// returns the last directory, opened; the caller closes this directory. It
// returns an error if a link exists in place of a directory below root.
func makeAndOpen(root string, mode fs.FileMode, names ...string) (*os.Root, error) {
	if err := checkFolders(names...); err != nil {
		return nil, err
	}
	folder, err := safeopen.Root(root)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(root, mode); err != nil {
			return nil, err
		}
		folder, err = safeopen.Root(root)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var next *os.Root
		if err = folder.Mkdir(name, mode); err == nil || errors.Is(err, fs.ErrExist) {
			next, err = safeopen.Folder(folder, name)
		}
		if err := errors.Join(err, folder.Close()); err != nil {
			return nil, err
		}
		folder = next
	}
	return folder, nil
}

// linkLog creates the link through which log shippers read a container's log.
// If the runtime has created no log file, linkLog creates no link. It logs
// errors, and the container keeps running.
func (t *podSync) linkLog(ctx context.Context, container string, attempt uint32, id string) {
	if t.cfg.ContainerLogs == "" {
		return
	}
	log := filepath.Join(LogDirectory(t.cfg.LogRoot, t.pod), containerLogPath(container, attempt))
	if _, err := os.Lstat(log); errors.Is(err, fs.ErrNotExist) {
		return
	}
	name := crilabels.LogLink(t.pod.Namespace, t.pod.Name, container, id)
	err := os.MkdirAll(t.cfg.ContainerLogs, 0o755)
	if err == nil {
		err = checkFolders(name)
	}
	if err == nil {
		err = os.Symlink(log, filepath.Join(t.cfg.ContainerLogs, name))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		t.cfg.Logger.WarnContext(ctx, "could not create the link to a container's log", "pod", podName(t.pod), "container", container, "containerID", id, "err", err)
	}
}

// removeLogs removes a pod's log directory, without following links. It finds
// the directory by the pod's UID, because the name and namespace of a pod that
// is not in the runtime are unknown.
func removeLogs(root string, uid types.UID) (err error) {
	if root == "" {
		return nil
	}
	dir, err := safeopen.Root(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove logs of a pod: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	folders, err := safeopen.ReadNames(dir, ".")
	if err != nil {
		return fmt.Errorf("remove logs of a pod: %w", err)
	}
	for _, folder := range folders {
		// Namespaces and names contain no underscore.
		if names := strings.SplitN(folder, "_", 3); len(names) < 3 || names[2] != string(uid) {
			continue
		}
		if err := dir.RemoveAll(folder); err != nil {
			return fmt.Errorf("remove logs of a pod: %w", err)
		}
	}
	return nil
}

// checkFolders returns an error if a name is not the name of a single
// directory.
func checkFolders(names ...string) error {
	for _, name := range names {
		if name == "." || filepath.Base(name) != name || !filepath.IsLocal(name) {
			return fmt.Errorf("%q is not the name of a directory", name)
		}
	}
	return nil
}
