package metrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/podcache"
)

// victim is the container of an OOM kill. The zero value stands for all kills whose pod is
// unknown.
type victim struct {
	uid       types.UID
	container string
}

// finder returns the pod and the container's name for the pod UID and the container ID of a
// kill, as in [oomwatch.ReporterConfig]. It returns false if the pod is unknown.
type finder = func(uid types.UID, containerID string) (*corev1.Pod, string, bool)

// OOMWatch returns an observer for an [oomwatch.Watcher] that counts events and then calls the
// given observer. The events are those that never reach a handler: the kills that the Watcher
// drops, and the lost records of the kernel's log.
func (m *Metrics) OOMWatch(next oomwatch.Observer, pod finder) oomwatch.Observer {
	o := next
	o.DroppedKill = chain1(func(k oomwatch.Kill) { m.Killed(k, pod) }, next.DroppedKill)
	o.LostRecords = chain1(func(n uint64) { m.managers.lostRecords.Add(float64(n)) }, next.LostRecords)
	return o
}

// Killed counts a kill. Call it for each kill that a handler receives. If the finder does not
// find the kill's pod, the kill is counted for the node.
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

// kills returns the number of kills by victim. It deletes the counts of victims whose pod is not
// among the given pods. If a container of the given pods had no OOM kill, its number is 0.
func (m *Metrics) kills(pods []*podcache.Status) map[victim]uint64 {
	now := map[victim]uint64{{}: 0}
	present := make(map[types.UID]bool, len(pods))
	for _, s := range pods {
		present[s.UID] = true
		for _, c := range s.Containers {
			now[victim{s.UID, podcache.ContainerName(c)}] = 0
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for v, n := range m.killed {
		if v.uid != "" && !present[v.uid] {
			delete(m.killed, v)
			continue
		}
		now[v] = n
	}
	return now
}
