package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// convert returns the status of container c. c must not be nil. If the runtime does not know the
// state of a container that was reported as running, convert returns a termination. If convert
// returned a waiting state instead, a container that must run only once could run twice.
func (g *generator) convert(c *runtimeapi.ContainerStatus, old *corev1.ContainerStatus) corev1.ContainerStatus {
	st := corev1.ContainerStatus{
		Name:         podcache.ContainerName(c),
		RestartCount: int32(min(podcache.RestartCount(c), maxRestarts)),
		Image:        c.GetImage().GetImage(),
		ImageID:      c.GetImageRef(),
		ContainerID:  containerID(g.RuntimeName, c.GetId()),
		User:         user(c.GetUser()),
	}
	switch state := c.GetState(); {
	case state == runtimeapi.ContainerState_CONTAINER_RUNNING:
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: unixNano(c.GetStartedAt())}
	case podcache.StartInterrupted(c): // the same as for a container that was only created
		st.State.Waiting = &corev1.ContainerStateWaiting{}
	case state == runtimeapi.ContainerState_CONTAINER_EXITED:
		st.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode:    c.GetExitCode(),
			Reason:      c.GetReason(),
			Message:     c.GetMessage(),
			StartedAt:   unixNano(c.GetStartedAt()),
			FinishedAt:  unixNano(c.GetFinishedAt()),
			ContainerID: st.ContainerID,
		}
	case state == runtimeapi.ContainerState_CONTAINER_UNKNOWN && old != nil && old.State.Running != nil:
		st.State.Terminated = lost(lostAtTermination)
		if g.restarting {
			st.State.Terminated.Reason = ReasonRestartingAllContainers
		}
		st.RestartCount = old.RestartCount + 1
	case state == runtimeapi.ContainerState_CONTAINER_UNKNOWN && old != nil && old.State.Terminated != nil && old.ContainerID == st.ContainerID:
		st.State.Terminated = old.State.Terminated.DeepCopy()
	default:
		st.State.Waiting = &corev1.ContainerStateWaiting{}
	}
	return st
}

// maxRestarts is the largest restart count that the API can represent.
const maxRestarts = 1<<31 - 1

// lost returns the termination of a container whose exit was not observed.
func lost(message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: lostExitCode, Reason: ReasonStatusUnknown, Message: message}
}

func containerID(runtimeName, id string) string {
	if runtimeName == "" {
		return id
	}
	return runtimeName + "://" + id
}

func unixNano(ns int64) metav1.Time { return metav1.Time{Time: time.Unix(0, ns)} }

func user(u *runtimeapi.ContainerUser) *corev1.ContainerUser {
	if u == nil {
		return nil
	}
	if u.GetLinux() == nil {
		return &corev1.ContainerUser{}
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
		UID:                u.GetLinux().GetUid(),
		GID:                u.GetLinux().GetGid(),
		SupplementalGroups: slices.Clone(u.GetLinux().GetSupplementalGroups()),
	}}
}
