package podworker

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// Syncer does the work of a pod's life. The four methods are called for one pod
// at a time and for many pods at once. A method that fails is called again later;
// it must be able to pick up where it stopped. It must return soon after ctx is
// done: then either the pod is to end, or to end sooner, or the agent is.
type Syncer interface {
	// SyncPod brings a pod closer to its spec. It is called until the pod is to
	// end. Terminal says that the pod has run to completion, which ends it
	// too: its containers have exited and are not to run again.
	SyncPod(ctx context.Context, t Turn) (terminal bool, err error)
	// SyncTerminatingPod stops everything that runs of a pod, within t.Grace.
	// A nil error means that nothing runs any more, and it is never called
	// again for that pod.
	SyncTerminatingPod(ctx context.Context, t Turn) error
	// SyncTerminatingRuntimePod does the same for a pod that has no spec: only
	// the runtime knows it. Nothing comes after it.
	SyncTerminatingRuntimePod(ctx context.Context, t Turn) error
	// SyncTerminatedPod releases what a stopped pod still holds. A nil error
	// finishes the pod.
	SyncTerminatedPod(ctx context.Context, t Turn) error
}

// Turn is what a worker knows when it calls its [Syncer]. Pod and Status are
// shared and must not be modified.
type Turn struct {
	// Type is why: the type of the newest update, or [Sync] if the worker came
	// back on its own.
	Type UpdateType
	// Pod is the newest spec. It is nil only for a pod that only the runtime
	// knows.
	Pod *corev1.Pod
	// Status is what the runtime says of the pod, never nil. It is at least as
	// new as the end of the last turn, or as the time that this turn passed to
	// [Turn.Refreshed], unless it is marked Stale: see [Config.FreshTimeout].
	Status *podcache.Status
	// Grace is what the pod may take to end, in whole seconds, at least one. It
	// is 0 before the pod is terminating.
	Grace time.Duration
	// Evict says that the pod ends because it was evicted.
	Evict bool
	// StatusFn changes the pod's last status, if not nil: whoever killed the pod
	// says why by it.
	StatusFn func(*corev1.PodStatus)

	acted     *bool
	refreshed *time.Time
	deadline  *lifecycle.Deadline
	follows   *atomic.Bool
}

// Deadline returns when the pod is to have ended: Grace after its first
// terminating turn began, and the same value in each turn. Whoever asks for it has
// promised to follow it: a second, shorter grace period then moves it while the
// turn goes on, instead of cancelling the turn. It is nil before the pod is
// terminating, and of a Turn that no worker made.
func (t Turn) Deadline() *lifecycle.Deadline {
	if t.follows != nil {
		t.follows.Store(true)
	}
	return t.deadline
}

// Acted says that this turn changed something in the runtime, so that looking
// there again is worth it at once: see [Config.AfterSync]. Call it before the
// turn returns, from its goroutine. On the zero Turn it does nothing.
func (t Turn) Acted() {
	if t.acted != nil {
		*t.acted = true
	}
}

// Refreshed records that the turn has changed nothing in the runtime since the
// given time, and that the Cache has a status of the pod that is as new: the next
// turn needs none that is newer, and [Config.AfterSync] is not called. Call it
// before the turn returns, from its goroutine. On the zero Turn it does nothing.
func (t Turn) Refreshed(since time.Time) {
	if t.refreshed != nil {
		*t.refreshed = since
	}
}

// UpdateType is why a pod is worked on.
type UpdateType uint8

// Types of updates.
const (
	// Sync asks for another look at a pod that has not changed. Workers ignore it for a
	// pod that they do not know.
	Sync UpdateType = iota
	// Create brings a new pod, or the same one again after a restart of the
	// agent.
	Create
	// Change brings a changed spec.
	Change
	// Kill ends the pod.
	Kill
)

// String returns the name that the kubelet's metrics have for the type.
func (t UpdateType) String() string {
	switch t {
	case Sync:
		return "sync"
	case Create:
		return "create"
	case Change:
		return "update"
	case Kill:
		return "kill"
	default:
		return "unknown"
	}
}

// Phase is how far a pod has come. Phases only move forward.
type Phase uint8

// Phases of a pod.
const (
	// Syncing pods are kept running.
	Syncing Phase = iota
	// Terminating pods are being stopped.
	Terminating
	// Terminated pods have nothing running and are being cleaned up.
	Terminated
	// Finished pods need nothing any more. They are remembered until
	// [Workers.SyncKnownPods] finds that nobody wants them.
	Finished
)

// String returns the name that the kubelet's metrics have for the phase.
func (p Phase) String() string {
	switch p {
	case Syncing:
		return "sync"
	case Terminating:
		return "terminating"
	case Terminated:
		return "terminated"
	case Finished:
		return "finished"
	default:
		return "unknown"
	}
}

// Update is news of one pod for [Workers.UpdatePod].
type Update struct {
	// Type is what kind of news this is.
	Type UpdateType
	// Pod is the pod as it is wanted now. It is retained and must not be modified
	// afterwards.
	Pod *corev1.Pod
	// Running is a pod that only the runtime knows. It counts only without a Pod
	// and goes only with Kill.
	Running *podcache.Status
	// Kill says more about a Kill, and is ignored otherwise.
	Kill KillOptions
}

// KillOptions says how a pod is to end. The zero value lets the spec decide.
type KillOptions struct {
	// Grace, if not nil, stands in for the grace period of the spec, though it be
	// longer, as in the kubelet; one that was decided before it only shortens.
	// Fractions of a second are dropped; less than a second is one.
	Grace *time.Duration
	// Evict marks the end as an eviction: [Workers.ShouldPodContentBeRemoved].
	Evict bool
	// StatusFn becomes [Turn.StatusFn] if not nil. The last one counts.
	StatusFn func(*corev1.PodStatus)
}
