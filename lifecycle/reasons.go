package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of a container that waits, as the kubelet writes them.
const (
	// CrashLoopBackOff is the reason of a container that ended and waits for its
	// restart.
	CrashLoopBackOff = "CrashLoopBackOff"
	// ImagePullBackOff is the reason of a container whose image could not be
	// pulled and will be tried again.
	ImagePullBackOff = "ImagePullBackOff"
)

// CrashLoopMessage is the message beside [CrashLoopBackOff], as the kubelet
// writes it.
func CrashLoopMessage(delay time.Duration, container string, pod *corev1.Pod) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		delay, container, pod.Name, pod.Namespace, pod.UID)
}
