package stats

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// podProbe measures pods from the files of their cgroups.
type podProbe struct {
	cgroupReader
	pods  string               // the cgroup of all pods
	found map[types.UID]string // cgroup of each pod
	out   []eviction.PodStats
}

// use sets the hierarchy and the cgroup of all pods. If one of them has changed, it forgets the
// cgroups of the pods.
func (r *podProbe) use(h hierarchy, pods string) {
	if r.hierarchy != h || r.pods != pods || r.found == nil {
		r.hierarchy, r.pods, r.found = h, pods, map[types.UID]string{}
	}
}

// cgroup returns the pod's cgroup, or an empty path if the cgroup does not exist. A found
// cgroup is recorded, because a pod's cgroup never moves.
func (r *podProbe) cgroup(uid types.UID) string {
	cgroup, ok := r.found[uid]
	if !ok {
		if cgroup = r.findPod(r.pods, uid); cgroup != "" {
			r.found[uid] = cgroup
		}
	}
	return cgroup
}

// forget deletes the recorded cgroups of pods that are not in the given map.
func (r *podProbe) forget(present map[types.UID]bool) {
	maps.DeleteFunc(r.found, func(uid types.UID, _ string) bool { return !present[uid] })
}

// where returns the hierarchy and the cgroup of all pods.
func (n *nodeProbe) where() (hierarchy, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prepare()
	return n.hierarchy, n.pods
}

// Pods measures the usage of each pod. Memory and processes are measured now, from the pod's
// cgroup. The other figures come from the last refresh, each with its time. If the memory can't be
// read from the pod's cgroup, it is the sum of what the runtime reported for the containers. If a
// pod started after the last refresh, only its memory and processes are known. Nil pods are
// skipped. The error is always nil: figures that can't be read are unknown.
//
// The next call of Pods reuses the slice of the result, so the caller must not use the result after
// that call begins. The call does not reuse the slices in the elements.
func (p *Provider) Pods(_ context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	p.pods.out = p.measurePods(p.pods.out[:0], pods)
	return p.pods.out, nil
}

// measurePods appends the measurements to out. Callers hold podsMu.
func (p *Provider) measurePods(out []eviction.PodStats, pods []*corev1.Pod) []eviction.PodStats {
	p.pods.use(p.node.where())
	present := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		present[pod.UID] = true
		out = append(out, p.pod(pod.UID))
	}
	p.pods.forget(present)
	return out
}

func (p *Provider) pod(uid types.UID) eviction.PodStats {
	p.mu.Lock()
	containers, disk := p.runtime.containers[uid], p.disk[uid]
	p.mu.Unlock()
	s := eviction.PodStats{UID: uid}
	if cgroup := p.pods.cgroup(uid); cgroup != "" {
		at := p.cfg.Clock.Now()
		s.Memory = usage(p.pods.memoryUsage(cgroup).workingSet(), at)
		s.Processes = usage(p.pods.processes(cgroup), at)
	}
	if !s.Memory.Known() {
		s.Memory = sumMemory(containers)
	}
	s.Containers = make([]eviction.ContainerStats, 0, len(containers))
	for _, c := range containers {
		s.Containers = append(s.Containers, containerStats(c))
	}
	for _, f := range disk.figures {
		switch f.kind {
		case volumeDisk:
			s.Volumes = append(s.Volumes, eviction.VolumeStats{Name: f.name, DiskUsage: f.DiskUsage})
		case logDisk:
			s.Containers = withLogs(s.Containers, f.name, f.DiskUsage)
		case otherDisk:
			s.Other = sum(s.Other, f.DiskUsage)
		}
	}
	return s
}

// withLogs adds the usage of a container's log folder, which has the logs of all attempts. It
// sets the logs of the first entry with the container's name or, if no entry has that name,
// appends an entry.
func withLogs(all []eviction.ContainerStats, name string, logs eviction.DiskUsage) []eviction.ContainerStats {
	for i := range all {
		if all[i].Name == name {
			all[i].Logs = logs
			return all
		}
	}
	return append(all, eviction.ContainerStats{Name: name, Logs: logs})
}

// sum adds the known values. The time of a sum is the time of the older value.
func sum(a, b eviction.DiskUsage) eviction.DiskUsage {
	return eviction.DiskUsage{Bytes: sumUsage(a.Bytes, b.Bytes), Inodes: sumUsage(a.Inodes, b.Inodes)}
}

func sumUsage(a, b eviction.Usage) eviction.Usage {
	switch {
	case !a.Known():
		return b
	case !b.Known():
		return a
	case b.Time.Before(a.Time):
		a.Time = b.Time
	}
	a.Value = toInt(known(uint64(a.Value)).plus(known(uint64(b.Value))).n)
	return a
}

func sumMemory(containers []*runtimeapi.ContainerStats) (all eviction.Usage) {
	for _, c := range containers {
		all = sumUsage(all, criUsage(c.GetMemory().GetWorkingSetBytes(), c.GetMemory().GetTimestamp()))
	}
	return all
}

func containerStats(c *runtimeapi.ContainerStats) eviction.ContainerStats {
	layer := c.GetWritableLayer()
	return eviction.ContainerStats{
		Name:   c.GetAttributes().GetMetadata().GetName(),
		Memory: criUsage(c.GetMemory().GetWorkingSetBytes(), c.GetMemory().GetTimestamp()),
		Rootfs: eviction.DiskUsage{
			Bytes:  criUsage(layer.GetUsedBytes(), layer.GetTimestamp()),
			Inodes: criUsage(layer.GetInodesUsed(), layer.GetTimestamp()),
		},
	}
}

// criUsage converts a figure of the runtime. The result is unknown if the value or the time is
// missing.
func criUsage(v *runtimeapi.UInt64Value, nanoseconds int64) eviction.Usage {
	if v == nil || nanoseconds <= 0 {
		return eviction.Usage{}
	}
	return eviction.Usage{Value: toInt(v.GetValue()), Time: time.Unix(0, nanoseconds)}
}
