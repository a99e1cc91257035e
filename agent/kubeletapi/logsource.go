package kubeletapi

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/internal/describe"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// findLog returns the location of a container's log. The path contains names from the pod's
// spec, which the agent has validated, and no names from the request.
func (s *Server) findLog(namespace, name, container string, previous bool) (podlogs.Source, error) {
	pod, ok := s.findPod(namespace, name)
	if !ok {
		return podlogs.Source{}, notFound("pod %q not found in namespace %q", name, namespace)
	}
	names := describe.Containers(pod.Spec)
	if !slices.Contains(names, container) {
		return podlogs.Source{}, notFound("container %q not found in pod %q, its containers are: %s", container, name, strings.Join(names, ", "))
	}
	attempt, err := attemptOf(pod, container, previous)
	if err != nil {
		return podlogs.Source{}, err
	}
	dir, err := filepath.Rel(s.cfg.PodLogs, filepath.Join(podrunner.LogDirectory(s.cfg.PodLogs, pod.Spec), container))
	if err != nil {
		return podlogs.Source{}, err
	}
	uid := pod.Spec.UID
	return podlogs.Source{Root: s.cfg.PodLogs, Dir: dir, Attempt: attempt, Ended: func() bool { return s.writesNoLog(uid) }}, nil
}

// writesNoLog reports whether all containers of a pod have stopped writing to their logs.
func (s *Server) writesNoLog(uid types.UID) bool {
	pod, known := s.cfg.Agent.Pod(uid)
	return !known || slices.Contains([]agent.State{agent.Refused, agent.Ended, agent.Removed, agent.Gone}, pod.State)
}

// attemptOf returns the attempt number of the requested instance of a container. If previous is
// true, this is the last terminated instance before the current one. Otherwise, it is the newest
// instance that has run. The error messages are the kubelet's.
func attemptOf(pod agent.Pod, container string, previous bool) (uint32, error) {
	s := describe.ContainerStatus(pod.Spec, container)
	if s == nil {
		return 0, badRequestf("container %q in pod %q is waiting to start - no logs yet", container, pod.Spec.Name)
	}
	id := ""
	switch {
	case previous && s.LastTerminationState.Terminated != nil:
		id = s.LastTerminationState.Terminated.ContainerID
	case previous:
		return 0, badRequestf("previous terminated container %q in pod %q not found", container, pod.Spec.Name)
	case s.State.Running != nil:
		id = s.ContainerID
	case s.State.Terminated != nil:
		id = cmp.Or(s.State.Terminated.ContainerID, s.ContainerID)
	case s.LastTerminationState.Terminated != nil:
		id = s.LastTerminationState.Terminated.ContainerID
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		return 0, badRequestf("container %q in pod %q is waiting to start: %s", container, pod.Spec.Name, s.State.Waiting.Reason)
	default:
		return 0, badRequestf("container %q in pod %q is waiting to start - no logs yet", container, pod.Spec.Name)
	}
	bare := podspec.RuntimeID(id)
	for _, c := range pod.Runtime.Containers {
		if c.GetId() == bare {
			return c.GetMetadata().GetAttempt(), nil
		}
	}
	// The container was removed, but its logs may still exist. The restart count
	// gives its attempt number.
	attempt := uint32(max(s.RestartCount, 0))
	if previous && (s.State.Running != nil || s.State.Terminated != nil) && attempt > 0 {
		attempt--
	}
	return attempt, nil
}
