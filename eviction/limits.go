package eviction

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Signals of evictions for a local storage limit. Metrics use them as labels.
const (
	// EmptyDirFSLimit: an emptyDir volume exceeds its size limit.
	EmptyDirFSLimit Signal = "emptydirfs.limit"
	// EphemeralPodFSLimit: a pod uses more local storage than the limits of its
	// containers allow in total.
	EphemeralPodFSLimit Signal = "ephemeralpodfs.limit"
	// EphemeralContainerFSLimit: a container uses more local storage than its limit.
	EphemeralContainerFSLimit Signal = "ephemeralcontainerfs.limit"
)

// Breach is a pod that exceeds a local storage limit.
type Breach struct {
	// Pod is the pod. It must not be modified.
	Pod *corev1.Pod
	// Signal is one of the limit signals.
	Signal Signal
	// Message names the limit, with the kubelet's text.
	Message string
	// Used and Limit are in bytes.
	Used, Limit int64
}

// MarshalJSON replaces the pod with its namespace, name and UID.
func (b Breach) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Namespace string    `json:"namespace"`
		Name      string    `json:"name"`
		UID       types.UID `json:"uid"`
		Signal    Signal    `json:"signal"`
		Message   string    `json:"message"`
		Used      int64     `json:"used"`
		Limit     int64     `json:"limit"`
	}{b.Pod.Namespace, b.Pod.Name, b.Pod.UID, b.Signal, b.Message, b.Used, b.Limit})
}

// hasLimits reports whether the pod has any local storage limit.
func hasLimits(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil {
			return true
		}
	}
	for c := range podspec.Containers(&pod.Spec) {
		if _, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
			return true
		}
	}
	return false
}

// breaches returns the pods that exceed a limit and may be evicted, in the order of obs.Pods.
func breaches(s State, obs Observations, p Policy, now time.Time) (all []Breach) {
	for _, pod := range obs.Pods {
		if pod == nil || obs.PodStats[pod.UID] == nil {
			continue
		}
		if b, ok := breach(pod, obs.PodStats[pod.UID], s.layout(obs.Node.Layout), p.IgnorePartialPodLimits); ok &&
			keptReason(&Candidate{Pod: pod}, &s, &p, now) == "" {
			all = append(all, b)
		}
	}
	return all
}

// breach returns the first limit that the pod exceeds.
func breach(pod *corev1.Pod, stats *PodStats, layout Layout, whole bool) (b Breach, found bool) {
	if b, found = emptyDirBreach(pod, stats); !found {
		b, found = podBreach(pod, stats, whole)
	}
	if !found {
		b, found = containerBreach(pod, stats, layout)
	}
	b.Pod = pod
	return b, found
}

// emptyDirBreach returns the first emptyDir volume, in the order of the spec, that
// exceeds its size limit.
func emptyDirBreach(pod *corev1.Pod, stats *PodStats) (Breach, bool) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil {
			continue
		}
		n := slices.IndexFunc(stats.Volumes, func(s VolumeStats) bool { return s.Name == v.Name })
		if n < 0 || !stats.Volumes[n].Bytes.Known() {
			continue
		}
		used, size := stats.Volumes[n].Bytes.Value, v.EmptyDir.SizeLimit
		if size.Sign() > 0 && size.CmpInt64(used) < 0 {
			return Breach{
				Signal: EmptyDirFSLimit, Used: used, Limit: size.Value(),
				Message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, size.String()),
			}, true
		}
	}
	return Breach{}, false
}

func podBreach(pod *corev1.Pod, stats *PodStats, whole bool) (Breach, bool) {
	sum := podspec.Limits(pod)[corev1.ResourceEphemeralStorage]
	if sum.Sign() <= 0 || whole && slices.ContainsFunc(pod.Spec.Containers, isUnlimited) {
		return Breach{}, false
	}
	used := NodeFSAvailable.measure(SingleFS).disk(pod, stats)
	if !used.Known() || sum.CmpInt64(used.Value) >= 0 {
		return Breach{}, false
	}
	return Breach{
		Signal: EphemeralPodFSLimit, Used: used.Value, Limit: sum.Value(),
		Message: fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", sum.String()),
	}, true
}

// isUnlimited reports whether the container has no ephemeral storage limit.
func isUnlimited(c corev1.Container) bool {
	_, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]
	return !ok
}

// containerBreach returns the first regular container, in the order of the stats, that
// exceeds its limit. Writable layers do not count if they and the images are on one
// filesystem, and the volumes and logs on another ([DedicatedImageFS]).
func containerBreach(pod *corev1.Pod, stats *PodStats, layout Layout) (Breach, bool) {
	for i := range stats.Containers {
		name := stats.Containers[i].Name
		n := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
		if n < 0 {
			continue
		}
		size := pod.Spec.Containers[n].Resources.Limits[corev1.ResourceEphemeralStorage]
		if used := containerDisk(name, stats, layout); size.Sign() > 0 && used > 0 && size.CmpInt64(used) < 0 {
			return Breach{
				Signal: EphemeralContainerFSLimit, Used: used, Limit: size.Value(),
				Message: fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", name, quantityText(size)),
			}, true
		}
	}
	return Breach{}, false
}

func containerDisk(name string, stats *PodStats, layout Layout) (used int64) {
	for i := range stats.Containers {
		c := &stats.Containers[i]
		if c.Name != name {
			continue
		}
		used = plus(used, c.Logs.Bytes.Value)
		if layout != DedicatedImageFS {
			used = plus(used, c.Rootfs.Bytes.Value)
		}
	}
	return used
}
