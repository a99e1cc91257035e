package lifecycle

import (
	"math"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// large stands for an amount that overflows. It is larger than any other amount of a world,
// in milli-units and in units.
const large = 1 << 52

// capPod replaces amounts that overflow in the scheduler.
func capPod(pod *corev1.Pod) {
	for _, all := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range all {
			capList(all[i].Resources.Requests)
		}
	}
}

func capList(list corev1.ResourceList) {
	for name, amount := range list {
		if amount.Cmp(resource.MustParse(tooMuch)) != 0 {
			continue
		}
		list[name] = *resource.NewQuantity(large, resource.BinarySI)
		if name == corev1.ResourceCPU {
			list[name] = *resource.NewMilliQuantity(large, resource.DecimalSI)
		}
	}
}

// sameAmounts reports whether two messages are equal except for numbers that overflow. Such a
// number is about large in kubelet and about the largest int64 in ours. The amount that pods
// use may have been subtracted from it.
func sameAmounts(kubelet, ours string) bool {
	number := regexp.MustCompile(`[0-9]{12,}`)
	theirs, mine := number.FindAllString(kubelet, -1), number.FindAllString(ours, -1)
	if number.ReplaceAllString(kubelet, "#") != number.ReplaceAllString(ours, "#") {
		return false
	}
	return !slices.ContainsFunc(theirs, func(text string) bool {
		i := slices.Index(theirs, text)
		n, err1 := strconv.ParseInt(text, 10, 64)
		m, err2 := strconv.ParseInt(mine[i], 10, 64)
		return err1 != nil || err2 != nil || m != n && (n < large-1<<40 || m < math.MaxInt64-1<<40)
	})
}

// goAnywhere makes a pod fit on a node with any labels and taints.
func goAnywhere(pod *corev1.Pod) {
	pod.Spec.NodeSelector, pod.Spec.Affinity = nil, nil
	pod.Spec.Tolerations = append(slices.Clone(pod.Spec.Tolerations), corev1.Toleration{Operator: corev1.TolerationOpExists})
}
