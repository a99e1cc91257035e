package lifecycle

import (
	"math"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// large stands for an amount that is too large to be counted: it is more than
// anything else in a world, in thousandths and in units.
const large = 1 << 52

// capPod replaces amounts that the scheduler cannot count.
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

// sameAmounts reports whether two messages are the same but for the numbers that are
// large in the one, and the largest possible, less what is there, in the other.
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

// goAnywhere lets a pod fit whatever labels and taints a node has.
func goAnywhere(pod *corev1.Pod) {
	pod.Spec.NodeSelector, pod.Spec.Affinity = nil, nil
	pod.Spec.Tolerations = append(slices.Clone(pod.Spec.Tolerations), corev1.Toleration{Operator: corev1.TolerationOpExists})
}
