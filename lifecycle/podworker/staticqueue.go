package podworker

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// staticQueue is the queue of static pods. It lets one pod of each full name
// run at a time. A changed manifest is a new pod of the same name, which must
// not start before the old pod has ended.
type staticQueue struct {
	// queues holds the pods of each name in order of arrival. Only the first
	// pod may run.
	queues map[string][]types.UID
}

// add appends the pod to the queue of its name.
func (g *staticQueue) add(name string, uid types.UID) {
	if !slices.Contains(g.queues[name], uid) {
		g.queues[name] = append(g.queues[name], uid)
	}
}

// first returns the pod that may run under the name.
func (g *staticQueue) first(name string) (uid types.UID, ok bool) {
	if queue := g.queues[name]; len(queue) > 0 {
		return queue[0], true
	}
	return "", false
}

// waits reports whether the pod waits for another pod of its name.
func (g *staticQueue) waits(name string, uid types.UID) bool {
	first, ok := g.first(name)
	return ok && first != uid
}

// remove removes the pod from the queue.
func (g *staticQueue) remove(name string, uid types.UID) {
	queue := slices.DeleteFunc(g.queues[name], func(u types.UID) bool { return u == uid })
	if len(queue) == 0 {
		delete(g.queues, name)
		return
	}
	g.queues[name] = queue
}
