package status

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Config configures a [Manager]. The zero value is valid.
type Config struct {
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives callbacks about changes. Optional.
	Observer Observer
	// TranslateUID translates the UID of a mirror pod to the UID of its static pod. It returns
	// any other UID unchanged. An implementation is TranslatePodUID of podmanager. Default: there
	// are no mirror pods.
	TranslateUID func(types.UID) types.UID
	// Pod returns the newest version of a pod, for example GetPodByUID of podmanager. The Manager
	// uses the spec of this pod when it applies probe results. Until a status of the pod is set,
	// it also uses the resize conditions of this pod. Default: the pod that was passed with the
	// last status.
	Pod func(types.UID) (*corev1.Pod, bool)
	// Saved returns the status that an earlier process has saved for a pod. An implementation
	// is [Saved.Status]. The Manager uses this status until a status of the pod is set, so
	// that no termination of a container is reported twice and no start time changes. Default:
	// the pod's own Status.
	Saved func(types.UID) (corev1.PodStatus, bool)
}

// Observer contains optional callbacks. They run on the goroutine of the call that caused
// them, one at a time and in the order of the changes. They may call the reading methods
// of the [Manager], but not the writing methods. Other writers wait until the callbacks
// have returned.
type Observer struct {
	// StatusChanged is called after a pod's status has changed.
	StatusChanged func(Change)
	// UpdateRefused is called with the error when a status is rejected.
	UpdateRefused func(pod *corev1.Pod, err error)
	// StatusRemoved is called after the status of a pod was removed.
	StatusRemoved func(uid types.UID)
	// ContainerTerminated is called before StatusChanged, once for each termination: for
	// every container that is terminated in the new status and was not terminated in the old
	// status.
	ContainerTerminated func(ContainerTermination)
}

// Change is one change of one pod's status. The objects that it points to are shared and
// must not be modified.
type Change struct {
	// Pod is the pod that the caller passed with the status.
	Pod *corev1.Pod
	// Old is the previous status, or the zero value for the first change. New is the current
	// status.
	Old, New corev1.PodStatus
	// Version counts the changes of this pod, from 1.
	Version uint64
	// Finished reports whether [Manager.TerminatePod] was called for the pod.
	Finished bool
}

// Validate reports every problem with c, joined. It returns nil at present, because every
// field has a default.
func (c Config) Validate() error { return nil }

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.TranslateUID == nil {
		c.TranslateUID = func(uid types.UID) types.UID { return uid }
	}
	if c.Pod == nil {
		c.Pod = func(types.UID) (*corev1.Pod, bool) { return nil, false }
	}
	if c.Saved == nil {
		c.Saved = func(types.UID) (corev1.PodStatus, bool) { return corev1.PodStatus{}, false }
	}
	return c
}
