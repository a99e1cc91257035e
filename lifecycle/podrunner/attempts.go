package podrunner

import (
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// attempts returns the restart count of the next instance of a container that
// is not in the runtime. The count is one more than the highest count in the
// names of the container's log files, as in the kubelet. Thus counts continue,
// and no log is overwritten. If there are no log files, attempts returns zero.
// Names come from manifests, so attempts checks them. Pods may be able to write
// below LogRoot, so attempts follows no link out of LogRoot.
func (r *Runner) attempts(pod *corev1.Pod, name string) uint32 {
	folder := logFolder(pod.Namespace, pod.Name, pod.UID)
	if r.cfg.LogRoot == "" || checkFolders(folder, name) != nil {
		return 0
	}
	root, err := safeopen.Root(r.cfg.LogRoot)
	if err != nil {
		return 0 // without a log directory, assume that the container has not run
	}
	logs, _ := safeopen.ReadNames(root, filepath.Join(folder, name))
	_ = root.Close() // root was only read
	return nextAttempt(logs)
}

// nextAttempt returns one more than the highest restart count in the names of
// log files, such as 3.log, or 3.log.20060102-150405 after rotation.
func nextAttempt(logs []string) (next uint32) {
	for _, name := range logs {
		number, rest, _ := strings.Cut(name, ".")
		n, err := strconv.ParseUint(number, 10, 31)
		if err == nil && (rest == "log" || strings.HasPrefix(rest, "log.")) {
			next = max(next, uint32(n)+1)
		}
	}
	return next
}
