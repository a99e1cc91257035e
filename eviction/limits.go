package eviction

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The signals of evictions for a limit, as metrics label them.
const (
	// EmptyDirFSLimit is an emptyDir that holds more than its size limit.
	EmptyDirFSLimit Signal = "emptydirfs.limit"
	// EphemeralPodFSLimit is a pod that uses more local storage than its
	// containers may together.
	EphemeralPodFSLimit Signal = "ephemeralpodfs.limit"
	// EphemeralContainerFSLimit is a container that uses more than it may.
	EphemeralContainerFSLimit Signal = "ephemeralcontainerfs.limit"
)

// Breach is a pod that uses more local storage than it may.
type Breach struct {
	// Pod is the pod. It must not be modified.
	Pod *corev1.Pod
	// Signal is one of the limit signals.
	Signal Signal
	// Message says which limit it is, as the kubelet does.
	Message string
	// Used and Limit are in bytes.
	Used, Limit int64
}

// MarshalJSON writes the pod as its names.
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

// hasLimits says whether there is a limit of local storage on the pod at all.
func hasLimits(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if _, ok := pod.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		if _, ok := pod.Spec.InitContainers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
			return true
		}
	}
	return false
}

// breaches returns the pods that break a limit, in the order of obs.
func breaches(s State, obs Observations, p Policy, now time.Time) (all []Breach) {
	for _, pod := range obs.Pods {
		if pod == nil || obs.PodStats[pod.UID] == nil || !hasLimits(pod) {
			continue
		}
		if b, ok := breach(pod, obs.PodStats[pod.UID], s.layout(obs.Node.Layout), p.IgnorePartialPodLimits); ok &&
			kept(&Candidate{Pod: pod}, &s, &p, now) == "" {
			all = append(all, b)
		}
	}
	return all
}

// breach returns the first limit that the pod breaks.
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

func emptyDirBreach(pod *corev1.Pod, stats *PodStats) (Breach, bool) {
	for i := range stats.Volumes {
		v, used := volume(pod, stats.Volumes[i].Name), stats.Volumes[i].Bytes
		if v == nil || v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || !used.Known() {
			continue
		}
		if size := v.EmptyDir.SizeLimit; size.Sign() > 0 && size.CmpInt64(used.Value) < 0 {
			return Breach{
				Signal: EmptyDirFSLimit, Used: used.Value, Limit: size.Value(),
				Message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, size.String()),
			}, true
		}
	}
	return Breach{}, false
}

func podBreach(pod *corev1.Pod, stats *PodStats, whole bool) (Breach, bool) {
	sum, all, some := limit(pod, corev1.ResourceEphemeralStorage)
	if !some || sum.Sign() <= 0 || whole && !all {
		return Breach{}, false
	}
	m := measure{signal: NodeFSAvailable, parts: parts{true, true, true}, resource: corev1.ResourceEphemeralStorage}
	used := m.disk(pod, stats)
	if !used.Known() || sum.CmpInt64(used.Value) >= 0 {
		return Breach{}, false
	}
	return Breach{
		Signal: EphemeralPodFSLimit, Used: used.Value, Limit: sum.Value(),
		Message: fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", sum.String()),
	}, true
}

// containerBreach looks at regular containers. Writable layers count unless they
// are on a filesystem of their own, with images.
func containerBreach(pod *corev1.Pod, stats *PodStats, layout Layout) (Breach, bool) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		size, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]
		if !ok || size.Sign() <= 0 {
			continue
		}
		if used := containerDisk(c.Name, stats, layout); used > 0 && size.CmpInt64(used) < 0 {
			return Breach{
				Signal: EphemeralContainerFSLimit, Used: used, Limit: size.Value(),
				Message: fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, quantityText(size)),
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
