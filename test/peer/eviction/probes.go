package eviction

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newcomers returns pods that ask for admission after each step.
func newcomers() map[string]*corev1.Pod {
	pod := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "ns", UID: "new"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		}
		edit(p)
		return p
	}
	tolerates := func(t corev1.Toleration) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{t} })
	}
	const memory, disk = corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure
	return map[string]*corev1.Pod{
		"best effort": pod(func(*corev1.Pod) {}),
		"burstable": pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
		}),
		"guaranteed":          pod(func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }),
		"static":              pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }),
		"api":                 pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "api"} }),
		"mirror":              pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": ""} }),
		"critical":            pod(func(p *corev1.Pod) { p.Spec.Priority = new(int32(2_000_000_000)) }),
		"below critical":      pod(func(p *corev1.Pod) { p.Spec.Priority = new(int32(1_999_999_999)) }),
		"tolerates all":       tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists}),
		"tolerates memory":    tolerates(corev1.Toleration{Key: memory, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}),
		"tolerates NoExecute": tolerates(corev1.Toleration{Key: memory, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}),
		"tolerates value":     tolerates(corev1.Toleration{Key: memory, Value: "x"}),
		"tolerates no value":  tolerates(corev1.Toleration{Key: memory}),
		"tolerates disk":      tolerates(corev1.Toleration{Key: disk, Operator: corev1.TolerationOpExists}),
	}
}

// admissionText prints an admission result. The kubelet lists the conditions in random order.
func admissionText(admit bool, reason, message string) string {
	if admit {
		return "admitted"
	}
	before, list, found := strings.Cut(message, "[")
	list, after, closed := strings.Cut(list, "]")
	if found && closed {
		all := strings.Fields(list)
		slices.Sort(all)
		message = before + fmt.Sprint(all) + after
	}
	return "refused: " + reason + ": " + message
}
