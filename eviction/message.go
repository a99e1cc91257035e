package eviction

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Reasons of events and pod statuses, as in the kubelet.
const (
	// Reason is the reason in the status of an evicted pod, of the event about the
	// eviction, and in the status of a pod that is refused under pressure.
	Reason = "Evicted"
	// EvictionThresholdMet is the reason of the node's event when a threshold is due,
	// whether or not anything can be reclaimed.
	EvictionThresholdMet = "EvictionThresholdMet"
	// ExceededGracePeriod is the reason of the event about a pod that did not terminate
	// in time.
	ExceededGracePeriod = "ExceededGracePeriod"
	// TerminationByKubelet is the reason of the condition DisruptionTarget of a
	// pod that was evicted for a threshold.
	TerminationByKubelet = "TerminationByKubelet"
)

// Annotation keys of the event about an evicted pod.
const (
	// OffendingContainersKey lists the containers that use more than their request,
	// OffendingContainersUsageKey their usage in the same order.
	OffendingContainersKey      = "offending_containers"
	OffendingContainersUsageKey = "offending_containers_usage"
	// StarvedResourceKey is the resource that the node is short of.
	StarvedResourceKey = "starved_resource"
	// OffendingPodKey is the name of a pod with a pod-level memory request,
	// OffendingPodUsageKey the memory usage of the pod.
	OffendingPodKey      = "offending_pod"
	OffendingPodUsageKey = "offending_pod_usage"
)

const overdueMessage = "Container runtime did not kill the pod within specified grace period."

// Eviction describes how to terminate a pod, and why.
type Eviction struct {
	// Signal is the signal of the threshold or limit.
	Signal Signal
	// GracePeriodSeconds is the pod's grace period, at least one second.
	GracePeriodSeconds int64
	// Message is the message of the pod's status and of the event. Annotations are the
	// annotations of the event.
	Message     string
	Annotations map[string]string
	// Disruption reports whether the pod is evicted for a threshold and not for its own
	// limit. If true, the pod's status gets the condition DisruptionTarget.
	Disruption bool
	// At is the time of the decision.
	At time.Time

	generation int64
}

// Apply sets the phase Failed, the reason and the message in status, and the condition
// DisruptionTarget if the pod is evicted for a threshold.
func (e Eviction) Apply(status *corev1.PodStatus) {
	status.Phase, status.Reason, status.Message = corev1.PodFailed, Reason, e.Message
	if !e.Disruption {
		return
	}
	want := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: TerminationByKubelet, Message: e.Message,
		ObservedGeneration: e.generation, LastTransitionTime: metav1.NewTime(e.At),
	}
	for i := range status.Conditions {
		if have := &status.Conditions[i]; have.Type == want.Type {
			if have.Status == want.Status {
				want.LastTransitionTime = have.LastTransitionTime
			}
			*have = want
			return
		}
	}
	status.Conditions = append(status.Conditions, want)
}

// evictionFor returns the eviction of a victim for the threshold of d.
func evictionFor(d *Decision, v *Victim, stats *PodStats) Eviction {
	r, s := d.Threshold, d.Signal
	e := Eviction{
		Signal: s, GracePeriodSeconds: v.GracePeriodSeconds, Disruption: true, At: d.At, generation: v.Pod.Generation,
		Message: fmt.Sprintf("The node was low on resource: %v. Threshold quantity: %s, available: %s. ",
			s.resource(), r.Threshold.Value.text(r.Observation.Capacity), s.amount(r.Observation.Available)),
	}
	if stats != nil {
		text, annotations := offenders(v.Pod, stats, s.resource())
		e.Message += text
		e.Annotations = annotations
	}
	return e
}

// offenders returns message text and annotations about the pod's usage of the resource. They
// contain the usage of each container that uses more than its request. If the resource is memory
// and the pod has a pod-level memory request, they also contain the usage of the whole pod.
func offenders(pod *corev1.Pod, stats *PodStats, name corev1.ResourceName) (text string, annotations map[string]string) {
	annotations = map[string]string{StarvedResourceKey: string(name)}
	var b strings.Builder
	if whole := pod.Spec.Resources; whole != nil && name == corev1.ResourceMemory && stats.Memory.Known() {
		if requested, ok := whole.Requests[name]; ok {
			used := bytesText(stats.Memory.Value)
			fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %v. ", pod.Name, used, quantityText(requested), name)
			annotations[OffendingPodKey], annotations[OffendingPodUsageKey] = pod.Name, used
		}
	}
	var containers, usages []string
	for i := range stats.Containers {
		c := podspec.Container(&pod.Spec, stats.Containers[i].Name) // nil for an ephemeral container, which has no requests
		used := stats.Containers[i].offendingUsage(name)
		if c == nil || !used.Known() {
			continue
		}
		if requested := c.Resources.Requests[name]; requested.CmpInt64(used.Value) < 0 {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ",
				c.Name, bytesText(used.Value), requested.String(), name)
			containers, usages = append(containers, c.Name), append(usages, bytesText(used.Value))
		}
	}
	annotations[OffendingContainersKey] = strings.Join(containers, ",")
	annotations[OffendingContainersUsageKey] = strings.Join(usages, ",")
	return b.String(), annotations
}

// offendingUsage returns the container's usage of memory or of ephemeral storage. It is
// unknown for other resources.
func (c *ContainerStats) offendingUsage(name corev1.ResourceName) Usage {
	switch {
	case name == corev1.ResourceMemory:
		return c.Memory
	case name == corev1.ResourceEphemeralStorage && c.Rootfs.Bytes.Known() && c.Logs.Bytes.Known():
		return c.Rootfs.Bytes.plus(c.Logs.Bytes)
	default:
		return Usage{}
	}
}

func bytesText(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

func quantityText(q resource.Quantity) string { return q.String() }
