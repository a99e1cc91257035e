package podrunner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// ErrNoSandbox means that a pod has no sandbox that a restart could replace.
var ErrNoSandbox = errors.New("the pod has no sandbox yet")

// replacedRecordName is the name of the record with the ID of the sandbox that
// a requested restart replaces. Without the record, an agent that is restarted
// while it stops the containers would not know of the request. The containers
// would stay in the old sandbox, and a pod with restartPolicy Never would end.
const replacedRecordName = "replaced-sandbox"

// Restart requests a restart of the pod. The next sync stops the pod within its
// grace period, and starts its init and regular containers in a new sandbox,
// whatever their restart policies are. Ephemeral containers that have run are
// not started again. The restart ends the back-offs of the containers and of
// the sandbox. status is the current state of the pod in the runtime. If
// [Config].State is set, a restarted agent completes the restart. The error is
// [ErrNoSandbox] if the status has no sandbox.
func (r *Runner) Restart(ctx context.Context, pod *corev1.Pod, status *podcache.Status) error {
	if len(status.Sandboxes) == 0 {
		return fmt.Errorf("restart pod %s: %w", podName(pod), ErrNoSandbox)
	}
	id := status.Sandboxes[0].GetId()
	if r.cfg.State != nil {
		if err := r.putRecord(ctx, pod.UID, replacedRecordName, []byte(id)); err != nil {
			return fmt.Errorf("restart pod %s: store the request: %w", podName(pod), err)
		}
	}
	r.setReplaced(pod.UID, id)
	for c := range podspec.Containers(&pod.Spec) {
		r.cfg.RestartBackoff.Reset(RestartKey(pod, c))
	}
	r.cfg.RestartBackoff.Reset(sandboxKey(pod.UID))
	return nil
}

// Restarting returns the names of the containers that a requested restart starts
// again: their newest instance is in the replaced sandbox. The result also has
// the names of such ephemeral containers, which are not started again. It can
// be used as status.Input.Restarting.
func (r *Runner) Restarting(ctx context.Context, status *podcache.Status) map[string]bool {
	replaced := r.Replaced(ctx, status.UID)
	if replaced == "" {
		return nil
	}
	names, seen := map[string]bool{}, map[string]bool{}
	for _, c := range status.Containers { // newest first
		if name := podcache.ContainerName(c); !seen[name] {
			seen[name] = true
			if status.SandboxOf[c.GetId()] == replaced {
				names[name] = true
			}
		}
	}
	return names
}

// Replaced returns the ID of the sandbox that the pod's last requested restart
// replaces or has replaced. The result is used as [Input].Replaced. The result
// is "" if no restart was requested, or if the record of the request can't be
// read.
func (r *Runner) Replaced(ctx context.Context, uid types.UID) string {
	r.mu.Lock()
	id, known := r.replacements[uid]
	r.mu.Unlock()
	if known || r.cfg.State == nil {
		return id
	}
	text, err := r.cfg.State.Get(ctx, recordKey(uid, replacedRecordName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if ctx.Err() == nil {
			r.cfg.Logger.ErrorContext(ctx, "could not read whether a restart of the pod was requested, will retry in the next sync", "podUID", uid, "err", err)
		}
		return ""
	}
	r.setReplaced(uid, string(text))
	return string(text)
}

func (r *Runner) setReplaced(uid types.UID, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replacements[uid] = id
}

// isReplaced reports whether s is in the sandbox that a requested restart
// replaces. If so, the plan ignores that s has ended, and the container starts
// again.
func (p *planner) isReplaced(s *runtimeapi.ContainerStatus) bool {
	return p.Replaced != "" && s != nil && p.Status.SandboxOf[s.GetId()] == p.Replaced
}
