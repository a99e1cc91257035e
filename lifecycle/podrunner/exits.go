package podrunner

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// Exit is the end of one instance of a container, as [Observer.PostExit] is told.
// Of one that ended by itself it is told before another takes its place; of one
// that the Runner stopped, in the turn after that, or before the terminating turn
// succeeds. Nothing is told from a stale status.
type Exit struct {
	// Pod is the pod, nil if only the runtime knows it. It is shared and must not
	// be modified.
	Pod *corev1.Pod
	// PodUID, Container and ID name the instance.
	PodUID    types.UID
	Container string
	ID        string
	// Status is how it ended; shared too. It is nil if nobody knows: the instance ran
	// when it was last seen, and was removed before the next look.
	Status *runtimeapi.ContainerStatus
	// PreStopped says that its preStop hook has run, to its end or the deadline.
	PreStopped bool
	// Earlier says that the instance had ended when this Runner first saw its pod:
	// an agent before may have told of it.
	Earlier bool
}

// instance is what was seen of an instance of a container.
type instance struct {
	name        string
	ran, exited bool
}

// tellExits tells of instances that have ended since the pod's last turn, the
// oldest first.
func (r *Runner) tellExits(pod *corev1.Pod, status *podcache.Status) {
	if status.Stale {
		return // what is missing there may be running
	}
	for _, e := range r.exits(status) {
		e.Pod = pod
		r.cfg.Observer.PostExit(e)
	}
}

// exits returns what is to be told, and counts it as told.
func (r *Runner) exits(status *podcache.Status) (exits []Exit) {
	uid := status.UID
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, known := r.seen[uid]
	if !known {
		seen = map[string]instance{}
		r.seen[uid] = seen
	}
	for _, s := range slices.Backward(status.Containers) {
		was := seen[s.GetId()]
		now := instance{name: podcache.ContainerName(s), ran: was.ran || mayRun(s), exited: exited(s)}
		if now.exited && !was.exited {
			exits = append(exits, Exit{Container: now.name, ID: s.GetId(), Status: s, Earlier: !known})
		}
		if now != was {
			seen[s.GetId()] = now
		}
	}
	if len(seen) > len(status.Containers) {
		exits = append(exits, vanished(seen, status)...)
	}
	for i := range exits {
		e := &exits[i]
		e.PodUID, e.PreStopped = uid, r.preStopped[uid][e.ID]
		delete(r.preStopped[uid], e.ID)
	}
	return exits
}

// vanished takes what the runtime does not show any more out of seen, and returns
// those that ran.
func vanished(seen map[string]instance, status *podcache.Status) (exits []Exit) {
	left := maps.Clone(seen)
	for _, s := range status.Containers {
		delete(left, s.GetId())
	}
	for _, id := range sortedKeys(left) {
		if i := left[id]; i.ran && !i.exited {
			exits = append(exits, Exit{Container: left[id].name, ID: id})
		}
		delete(seen, id)
	}
	return exits
}
