package podrunner

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// postStart runs the postStart hook of a container that has started. As in the
// kubelet, the next containers start after the hook, and a container is stopped
// if its hook fails.
func (t *podSync) postStart(ctx context.Context, c *corev1.Container, id string) error {
	if t.cfg.Hooks == nil || c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	result := t.cfg.Hooks.Run(ctx, lifecycle.Hook{
		Kind: lifecycle.PostStart, Pod: t.pod, Container: c, ContainerID: id, PodIP: hookIP(t.pod, t.sandbox.ips, t.node),
		Deadline: lifecycle.NewDeadline(t.cfg.Clock, t.cfg.Clock.Now().Add(t.cfg.PostStartTimeout)),
		Exited:   t.exited(id),
	})
	switch {
	case result.Err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("postStart hook: %w", result.Err) // cancelled by the agent: not a failure of the container
	}
	message := result.Message
	if message == "" {
		message = result.Err.Error()
	}
	failed := &startError{reason: lifecycle.PostStartHookError, message: message}
	t.event(podspec.ContainerReference(t.pod, c.Name), corev1.EventTypeNormal, lifecycle.Killing, "%s", lifecycle.FailedPostStartHook)
	e := t.newStopGroup(t.pod, lifecycle.NewDeadline(t.cfg.Clock, t.cfg.Clock.Now().Add(lifecycle.KillGrace(t.pod, nil))), t.sandbox.ips)
	e.add(c.Name, target{id: id, running: true})
	if err := e.stopAll(ctx); err != nil {
		failed.err = err
	}
	return failed
}

// hookIP returns the address for HTTP hooks that name no host.
func hookIP(pod *corev1.Pod, ips []string, node Node) string {
	if pod.Spec.HostNetwork {
		ips = node.IPs
	}
	return first(ips)
}

func (r *Runner) exited(id string) <-chan struct{} {
	if r.cfg.Exited == nil {
		return nil
	}
	return r.cfg.Exited(id)
}

// hookDone reports whether the preStop hook of the container has ended. A
// cancelled hook does not count as ended.
func (r *Runner) hookDone(uid types.UID, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.preStopped[uid][id]
}

func (r *Runner) setHookDone(ctx context.Context, uid types.UID, id string) {
	r.mu.Lock()
	r.setPreStopped(uid, id)
	r.mu.Unlock()
	r.writeTermination(ctx, uid)
}

// setPreStopped records that the container's preStop hook has ended. The caller
// holds r.mu.
func (r *Runner) setPreStopped(uid types.UID, id string) {
	if r.preStopped[uid] == nil {
		r.preStopped[uid] = map[string]bool{}
	}
	r.preStopped[uid][id] = true
}

// forgetHooks deletes the records of preStop hooks of containers that have
// ended.
func (r *Runner) forgetHooks(status *podcache.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.preStopped[status.UID], func(id string, _ bool) bool {
		return !slices.ContainsFunc(status.Containers, func(s *runtimeapi.ContainerStatus) bool { return s.GetId() == id && mayRun(s) })
	})
}

// podFromAnnotations reconstructs a pod that only the runtime knows. It uses
// the annotations of the pod's containers. So the preStop hooks of these
// containers can run.
func podFromAnnotations(status *podcache.Status) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID, pod.Namespace, pod.Name = status.UID, status.Namespace, status.Name
	for _, s := range status.Containers {
		if exited(s) {
			continue
		}
		c := corev1.Container{Name: podcache.ContainerName(s)}
		hook, annotations := &corev1.LifecycleHandler{}, s.GetAnnotations()
		if text := annotations[crilabels.PreStopHandler]; text != "" && json.Unmarshal([]byte(text), hook) == nil {
			c.Lifecycle = &corev1.Lifecycle{PreStop: hook}
		}
		if text := annotations[portsAnnotation]; text != "" && json.Unmarshal([]byte(text), &c.Ports) != nil {
			c.Ports = nil
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	for _, s := range status.Sandboxes {
		pod.Spec.HostNetwork = s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
		break
	}
	return pod
}
