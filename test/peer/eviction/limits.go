package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

func hasLimits(pod *corev1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil {
			return true
		}
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if _, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
			return true
		}
	}
	return false
}

// limits returns the pods that are evicted for a limit, in order.
func (st *step) limits(q quirks, at time.Duration) (all []string) {
	if st.w.NoLimits || in(st.w.Blind, at) {
		return nil
	}
	for _, name := range st.activeAt(at) {
		p := st.m.pod(name)
		u, ok := p.usage(at)
		if q[oldPodFigures] {
			u, ok = p.recent(at)
		}
		if !ok || isCritical(p.Pod) || !st.breaks(p, u, q) {
			continue
		}
		if q[endingPassed] && st.isEnding(name, at) {
			continue
		}
		all = append(all, name)
	}
	return all
}

// isEnding reports whether the kill of a pod was requested before, or cannot be retried yet.
func (st *step) isEnding(name string, at time.Duration) bool {
	if !st.isBetween {
		return slices.Contains(st.note().Ending, name)
	}
	return st.hasFailed(name, at) || slices.ContainsFunc(st.flights(at), func(f flight) bool { return f.p.Pod.Name == name })
}

// breaks reports whether a pod exceeds a limit.
func (st *step) breaks(p *podSpec, u podUsage, q quirks) bool {
	for _, v := range u.Volumes {
		spec := p.volume(v.Name)
		if spec.EmptyDir == nil || spec.EmptyDir.SizeLimit == nil {
			continue
		}
		if l := spec.EmptyDir.SizeLimit; l.Sign() > 0 && l.CmpInt64(v.Disk.Bytes) < 0 {
			return true
		}
	}
	l, ok := podLimit(p.Pod)
	if ok && l.CmpInt64(u.total(p)) < 0 && (!q[limitZero] || l.Sign() > 0) {
		return true
	}
	for _, c := range u.Containers {
		i := slices.IndexFunc(p.Pod.Spec.Containers, func(o corev1.Container) bool { return o.Name == c.Name })
		if i < 0 {
			continue
		}
		used := orZero(c.Logs).Bytes
		if st.w.Layout == eviction.SingleFS || q[splitLayers] && st.w.Layout == eviction.SplitFS {
			used += orZero(c.Rootfs).Bytes
		}
		l, ok := p.Pod.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]
		if ok && l.Sign() > 0 && l.CmpInt64(used) < 0 {
			return true
		}
	}
	return false
}

// total returns the disk usage of the pod.
func (u *podUsage) total(p *podSpec) int64 {
	sum := u.Other
	for _, c := range u.Containers {
		sum += orZero(c.Rootfs).Bytes + orZero(c.Logs).Bytes
	}
	for _, v := range u.Volumes {
		if isLocal(p.volume(v.Name)) {
			sum += v.Disk.Bytes
		}
	}
	return sum
}
