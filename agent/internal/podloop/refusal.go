package podloop

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// refusedMessage is the prefix of a refused pod's status message, as in the kubelet.
const refusedMessage = "Pod was rejected: "

// refusedStatus returns the function that changes a pod's status for a refusal.
func refusedStatus(why lifecycle.PodAdmitResult) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, why.Reason, refusedMessage+why.Message
	}
}

// refused returns the status of a pod that was not admitted. All fields except phase, reason,
// message and QoS class are copied from the previous status, because containers of an earlier
// version of the pod may run until they are stopped.
func refused(pod *corev1.Pod, before corev1.PodStatus, why lifecycle.PodAdmitResult) corev1.PodStatus {
	refusedStatus(why)(&before)
	before.QOSClass = podspec.QOSClass(pod)
	return before
}

// countsAfterRestart reports whether a status that an earlier agent has saved is still valid.
// The status of a refusal is not valid, because the node may have changed. The status of a pod
// that was ended by the shutdown of the node or of the agent is not valid either. The same applies
// to any status with the phase Failed that has no status of a regular container.
func countsAfterRestart(s corev1.PodStatus) bool {
	return s.Phase != corev1.PodFailed ||
		len(s.ContainerStatuses) > 0 && !strings.HasPrefix(s.Message, refusedMessage) && s.Reason != podworker.ReasonTerminated
}
