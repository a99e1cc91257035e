package metrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/podcache"
)

// A victim is a container that was hit. All that is nobody's is the zero value.
type victim struct {
	uid       types.UID
	container string
}

// finder finds the pod and the name of the container of a kill, as
// [oomwatch.ReporterConfig] has it.
type finder = func(uid types.UID, containerID string) (*corev1.Pod, string, bool)

// OOMWatch returns an observer for an [oomwatch.Watcher] that goes on to call next, and
// counts what no handler will.
func (m *Metrics) OOMWatch(next oomwatch.Observer, pod finder) oomwatch.Observer {
	o := next
	o.DroppedKill = then1(func(k oomwatch.Kill) { m.Killed(k, pod) }, next.DroppedKill)
	o.LostRecords = then1(func(n uint64) { m.upkeep.lostRecords.Add(float64(n)) }, next.LostRecords)
	return o
}

// Killed counts a kill that a handler got. What pod does not find counts for the node.
func (m *Metrics) Killed(k oomwatch.Kill, pod finder) {
	var v victim
	if k.PodUID != "" || k.ContainerID != "" {
		if p, container, ok := pod(k.PodUID, k.ContainerID); ok && p != nil {
			v = victim{p.UID, container}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killed[v]++
}

// kills returns how often what is there was hit, and forgets what is not.
func (m *Metrics) kills(pods []*podcache.Status) map[victim]uint64 {
	now := map[victim]uint64{{}: 0}
	there := make(map[types.UID]bool, len(pods))
	for _, s := range pods {
		there[s.UID] = true
		for _, c := range s.Containers {
			now[victim{s.UID, podcache.ContainerName(c)}] = 0
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for v, n := range m.killed {
		if v.uid != "" && !there[v.uid] {
			delete(m.killed, v)
			continue
		}
		now[v] = n
	}
	return now
}
