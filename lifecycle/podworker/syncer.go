package podworker

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// Syncer does the work of a pod's life cycle. Its methods are called
// concurrently for many pods, but only one at a time for one pod. A method that
// fails is called again later; it must then continue where it stopped. A method
// must return soon after ctx is done. The Workers cancel ctx if the pod must be
// terminated, if its grace period was shortened (unless the method has called
// [SyncRequest.Deadline]), or if Run's ctx is done.
type Syncer interface {
	// SyncPod makes a pod match its spec. It is called until the pod must be
	// terminated. If terminal is true, the pod has run to completion: its
	// containers have exited and must not run again. The pod is then
	// terminated.
	SyncPod(ctx context.Context, req SyncRequest) (terminal bool, err error)
	// SyncTerminatingPod stops all containers of a pod within req.Grace. A nil
	// error means that nothing of the pod runs any more. SyncTerminatingPod is
	// then never called again for the pod.
	SyncTerminatingPod(ctx context.Context, req SyncRequest) error
	// SyncTerminatingRuntimePod stops all containers of a pod that has no spec,
	// because only the runtime knows it. A nil error finishes the pod if it
	// still has no spec.
	SyncTerminatingRuntimePod(ctx context.Context, req SyncRequest) error
	// SyncTerminatedPod releases the resources of a stopped pod. A nil error
	// finishes the pod.
	SyncTerminatedPod(ctx context.Context, req SyncRequest) error
}

// SyncRequest describes a sync, which is one call of a [Syncer] for one pod. Pod
// and Status are shared and must not be modified.
type SyncRequest struct {
	// Type is the type of the newest update, or [Sync] if the sync is periodic
	// or a retry.
	Type UpdateType
	// Pod is the newest spec. It is nil if only the runtime knows the pod.
	Pod *corev1.Pod
	// Status is the pod's state in the runtime, never nil. It is at least as
	// new as the end of the last sync, or as the time that the last sync passed
	// to [SyncRequest.Refreshed]. A status that is marked Stale may be older:
	// see [Config.FreshTimeout].
	Status *podcache.Status
	// Grace is the pod's grace period, in whole seconds, at least one. It is 0
	// in the phase Syncing, and for a pod that ended before this agent started.
	Grace time.Duration
	// Evict reports whether the pod was evicted.
	Evict bool
	// StatusFn, if not nil, changes the pod's last status. The caller that
	// killed the pod sets the reason of the kill with this function.
	StatusFn func(*corev1.PodStatus)

	acted        *bool
	refreshed    *time.Time
	deadline     *lifecycle.Deadline
	usesDeadline *atomic.Bool
}

// Deadline returns the time by which the pod must have ended: Grace after the
// beginning of its first terminating sync. If the pod was already being deleted
// when this agent started, the time may be earlier: see
// [lifecycle.ResumedDeadline]. All terminating syncs of a pod have the same
// Deadline. A Syncer that calls Deadline must respect the deadline: if the
// grace period becomes shorter during the sync, the Workers move the deadline
// and do not cancel the sync. Deadline returns nil if the pod is not in the
// phase Terminating, and for a SyncRequest that no worker has made.
func (req SyncRequest) Deadline() *lifecycle.Deadline {
	if req.usesDeadline != nil {
		req.usesDeadline.Store(true)
	}
	return req.deadline
}

// Acted records that this sync changed something in the runtime, so that the
// pod's status should be refreshed at once: see [Config.AfterSync]. Call Acted
// on the goroutine of the sync, before the sync returns. On the zero
// SyncRequest, Acted does nothing.
func (req SyncRequest) Acted() {
	if req.acted != nil {
		*req.acted = true
	}
}

// Refreshed records that the sync has changed nothing in the runtime since the
// given time, and that the Cache has a status of the pod from this time or
// later. The next sync then needs no newer status, and [Config.AfterSync] is
// not called. Call Refreshed on the goroutine of the sync, before the sync
// returns. On the zero SyncRequest, Refreshed does nothing.
func (req SyncRequest) Refreshed(since time.Time) {
	if req.refreshed != nil {
		*req.refreshed = since
	}
}

// UpdateType is the reason for an update or a sync.
type UpdateType uint8

// Types of updates.
const (
	// Sync requests a sync of a pod that has not changed. Workers ignore it for
	// an unknown pod.
	Sync UpdateType = iota
	// Create adds a new pod, or after a restart of the agent a pod that already
	// exists.
	Create
	// Change updates the spec.
	Change
	// Kill terminates the pod.
	Kill
)

// String returns the name of the type in the kubelet's metrics.
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

// Phase is a phase of a pod's life cycle. Phases only move forward.
type Phase uint8

// Phases of a pod.
const (
	// Syncing means that the Syncer keeps the pod running.
	Syncing Phase = iota
	// Terminating means that the pod is being stopped.
	Terminating
	// Terminated means that nothing of the pod runs and that it is being
	// cleaned up.
	Terminated
	// Finished means that nothing is left to do. The pod stays known until
	// [Workers.SyncKnownPods] finds that it is not desired.
	Finished
)

// String returns the name of the phase in the kubelet's metrics.
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

// Update is an update of one pod for [Workers.UpdatePod].
type Update struct {
	// Type is the type of the update.
	Type UpdateType
	// Pod is the desired pod. It is retained and must not be modified
	// afterwards.
	Pod *corev1.Pod
	// Running is a pod that only the runtime knows. It is used only if Pod is
	// nil and Type is Kill.
	Running *podcache.Status
	// Kill holds the options of a Kill. It is used only if Type is Kill.
	Kill KillOptions
}

// KillOptions describes how a pod is terminated. The zero value uses the pod's
// spec.
type KillOptions struct {
	// Grace, if not nil, replaces the grace period of the spec, even if Grace
	// is longer, as in the kubelet. If the pod already has a grace period from
	// its deletion or from an earlier update, Grace can only shorten this grace
	// period. Fractions of a second are dropped; less than a second becomes one
	// second.
	Grace *time.Duration
	// Evict marks the termination as an eviction: see
	// [Workers.ShouldPodContentBeRemoved].
	Evict bool
	// StatusFn, if not nil, becomes [SyncRequest.StatusFn]. If several kills
	// have a StatusFn, the last StatusFn counts.
	StatusFn func(*corev1.PodStatus)
}
