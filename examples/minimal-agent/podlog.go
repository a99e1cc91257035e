package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/describe"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server/podlogs"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// findLog finds the log of a container of a pod that is known. Its path is made of the
// pod's names, which were checked with its manifest, and of nothing that was asked
// with.
func (a *agent) findLog(_ context.Context, namespace, name, container string, previous bool) (podlogs.Source, error) {
	pod, _ := a.findPod(namespace, name)
	if pod == nil {
		return podlogs.Source{}, notFound("pod %q not found in namespace %q", name, namespace)
	}
	names := describe.Containers(pod)
	if !slices.Contains(names, container) {
		return podlogs.Source{}, notFound("container %q not found in pod %q, which has %s", container, name, strings.Join(names, ", "))
	}
	attempt, err := a.attemptOf(pod, container, previous)
	if err != nil {
		return podlogs.Source{}, err
	}
	dir, err := filepath.Rel(a.logRoot(), filepath.Join(podrunner.LogDirectory(a.logRoot(), pod), container))
	if err != nil {
		return podlogs.Source{}, err
	}
	uid := pod.UID
	return podlogs.Source{
		Root: a.logRoot(), Dir: dir, Attempt: attempt,
		Ended: func() bool {
			_, wanted := a.pods.GetPodByUID(uid)
			return !a.workers.CouldHaveRunningContainers(uid) && (!wanted || a.workers.IsPodKnownTerminated(uid) || a.isRejected(uid))
		},
	}, nil
}

// attemptOf says which instance of a container is asked for: the one that runs or has
// run last, or the one before that. The messages are the kubelet's.
func (a *agent) attemptOf(pod *corev1.Pod, container string, previous bool) (uint32, error) {
	bad := func(format string, args ...any) error {
		return &server.StatusError{Code: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
	}
	s := describe.ContainerStatus(pod, container)
	if s == nil {
		return 0, bad("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
	}
	id := ""
	switch {
	case previous && s.LastTerminationState.Terminated != nil:
		id = s.LastTerminationState.Terminated.ContainerID
	case previous:
		return 0, bad("previous terminated container %q in pod %q not found", container, pod.Name)
	case s.State.Running != nil:
		id = s.ContainerID
	case s.State.Terminated != nil:
		id = cmp.Or(s.State.Terminated.ContainerID, s.ContainerID)
	case s.LastTerminationState.Terminated != nil:
		id = s.LastTerminationState.Terminated.ContainerID
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		return 0, bad("container %q in pod %q is waiting to start: %s", container, pod.Name, s.State.Waiting.Reason)
	default:
		return 0, bad("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
	}
	bare := podspec.RuntimeID(id)
	if observed, err := a.cache.Get(pod.UID); err == nil {
		for _, c := range observed.Containers {
			if c.GetId() == bare {
				return c.GetMetadata().GetAttempt(), nil
			}
		}
	}
	// It was removed; its logs may be there for a while.
	attempt := uint32(max(s.RestartCount, 0))
	if previous && s.State.Running != nil && attempt > 0 {
		attempt--
	}
	return attempt, nil
}
