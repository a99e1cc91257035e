package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of waiting containers, as the kubelet writes them.
const (
	// CrashLoopBackOff is the reason of a container that ended and waits for
	// its restart.
	CrashLoopBackOff = "CrashLoopBackOff"
	// ImagePullBackOff is the reason of a container whose image could not be
	// pulled; the pull will be retried.
	ImagePullBackOff = "ImagePullBackOff"
	// PostStartHookError is the reason of a container that was killed because
	// its postStart hook failed.
	PostStartHookError = "PostStartHookError"
)

// Reasons of rejected pods, as the kubelet writes them. If a filter of the
// scheduler rejects the pod, the reason is the filter's name.
const (
	// PodOSSelectorNodeLabelDoesNotMatch is the reason of a pod whose label
	// kubernetes.io/os names another operating system.
	PodOSSelectorNodeLabelDoesNotMatch = "PodOSSelectorNodeLabelDoesNotMatch"
	// PodOSNotSupported is the reason of a pod whose spec.os names another
	// operating system.
	PodOSNotSupported = "PodOSNotSupported"
	// InvalidNodeInfo is the reason of a pod that was rejected because the node
	// could not be read.
	InvalidNodeInfo = "InvalidNodeInfo"
	// SupplementalGroupsPolicyNotSupported is the reason of a pod that requests
	// the policy Strict on a node whose runtime does not support this policy.
	SupplementalGroupsPolicyNotSupported = "SupplementalGroupsPolicyNotSupported"
	// UnexpectedAdmissionError is the reason of a pod that was rejected because
	// admission failed with an error.
	UnexpectedAdmissionError = "UnexpectedAdmissionError"
	// InsufficientResourcePrefix is the prefix of the reason of a pod that was
	// rejected because the node has too little of a resource. The name of the
	// resource follows.
	InsufficientResourcePrefix = "OutOf"
	// OutOfCPU, OutOfMemory, OutOfEphemeralStorage and OutOfPods are the
	// reasons for the common resources.
	OutOfCPU              = InsufficientResourcePrefix + string(corev1.ResourceCPU)
	OutOfMemory           = InsufficientResourcePrefix + string(corev1.ResourceMemory)
	OutOfEphemeralStorage = InsufficientResourcePrefix + string(corev1.ResourceEphemeralStorage)
	OutOfPods             = InsufficientResourcePrefix + string(corev1.ResourcePods)
	// NodeAffinity, NodeName, NodePorts and TaintToleration are the names of
	// the filters.
	NodeAffinity    = "NodeAffinity"
	NodeName        = "NodeName"
	NodePorts       = "NodePorts"
	TaintToleration = "TaintToleration"
)

// Messages of the scheduler's filters. The message of a rejection is "Predicate
// NAME failed: " followed by one of these messages.
const (
	nodeAffinityMismatch = "node(s) didn't match Pod's node affinity/selector"
	nodeNameMismatch     = "node(s) didn't match the requested node name"
	nodePortsTaken       = "node(s) didn't have free ports for the requested pod ports"
	taintNotTolerated    = "node(s) had taints that the pod didn't tolerate"
)

// Reasons and messages of pods that are killed.
const (
	// DeadlineExceeded is the reason of a pod that was active for too long, and
	// of the event about this.
	DeadlineExceeded = "DeadlineExceeded"
	// DeadlineExceededMessage is the message for [DeadlineExceeded].
	DeadlineExceededMessage = "Pod was active on the node longer than the specified deadline"
	// Preempting is the reason of a pod that was preempted by a critical pod,
	// and of the warning about the preemption.
	Preempting = "Preempting"
	// PreemptingMessage is the message for [Preempting].
	PreemptingMessage = "Preempted in order to admit critical pod"
)

// Reasons and messages of events about containers and their hooks.
const (
	// Killing is the reason of the event of type Normal about a container that
	// is being stopped.
	Killing = "Killing"
	// FailedPostStartHook is the reason of the warning about a failed postStart
	// hook. The event does not contain the hook's output, which may hold
	// secrets.
	FailedPostStartHook = "FailedPostStartHook"
	// PostStartHookFailedMessage is the message for [FailedPostStartHook].
	PostStartHookFailedMessage = "PostStartHook failed"
	// FailedPreStopHook is the reason of the warning about a failed preStop hook.
	FailedPreStopHook = "FailedPreStopHook"
	// PreStopHookFailedMessage is the message for [FailedPreStopHook].
	PreStopHookFailedMessage = "PreStopHook failed"
	// LifecycleHTTPFallback is the reason of the warning about an HTTPS hook
	// that succeeded only with plain HTTP, because the server does not use TLS.
	LifecycleHTTPFallback = "LifecycleHTTPFallback"
)

// CrashLoopMessage returns the message for [CrashLoopBackOff], as the kubelet
// writes it.
func CrashLoopMessage(delay time.Duration, container string, pod *corev1.Pod) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		delay, container, pod.Name, pod.Namespace, pod.UID)
}

// ImagePullMessage returns the message for [ImagePullBackOff], as the kubelet
// writes it. The event BackOff has the same message. The given image is the
// image reference in the spec.
func ImagePullMessage(image string) string { return fmt.Sprintf("Back-off pulling image %q", image) }

// StoppingMessage returns the message of the event [Killing] for a container
// that is stopped without a more specific reason.
func StoppingMessage(container string) string { return "Stopping container " + container }
