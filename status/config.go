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
	// Observer receives what happens. Optional.
	Observer Observer
	// TranslateUID returns the UID of the static pod whose mirror has the given
	// one, and any other UID as it is: podmanager's method of that name. Default:
	// there are no mirrors.
	TranslateUID func(types.UID) types.UID
	// Pod returns the newest version of a pod, by which results of its probes are
	// judged, and whose resize conditions count until its status is reported:
	// podmanager's GetPodByUID. Default: the version that was reported last.
	Pod func(types.UID) (*corev1.Pod, bool)
	// Saved returns the status of a pod that an earlier process has saved, such as
	// [Saved.Status]. It counts until a status is set, so that no end of a container is
	// reported twice and no start time moves. Default: the pod's own Status.
	Saved func(types.UID) (corev1.PodStatus, bool)
}

// Observer holds optional callbacks. They run on the goroutine of the call that
// caused them, one at a time and in the order of the changes. They may call the
// reading methods of the [Manager], must not call the writing ones, and delay
// other writers for as long as they take.
type Observer struct {
	// StatusChanged is called after a pod's status has changed.
	StatusChanged func(Change)
	// UpdateRefused is called when a status was not taken, with the reason.
	UpdateRefused func(pod *corev1.Pod, err error)
	// StatusRemoved is called after a pod was forgotten.
	StatusRemoved func(uid types.UID)
	// ContainerTerminated is called, before StatusChanged, for every container that
	// is shown as terminated and was not before: once for each end.
	ContainerTerminated func(ContainerEnd)
}

// Change is one change of one pod's status. What it points to is shared and must
// not be modified.
type Change struct {
	// Pod is the pod as the caller gave it.
	Pod *corev1.Pod
	// Old is the status that was published before, the zero value at first. New is
	// the one to publish now.
	Old, New corev1.PodStatus
	// Version counts the changes of this pod, from 1.
	Version uint64
	// Finished says that [Manager.TerminatePod] was called for the pod.
	Finished bool
}

// Validate reports every problem with c, joined. There are none yet: each field
// has a default.
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
