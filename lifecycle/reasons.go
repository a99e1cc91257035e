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
	// PostStartHookError is the reason of a container that was killed because
	// its postStart hook failed.
	PostStartHookError = "PostStartHookError"
)

// Reasons for which a pod is refused, as the kubelet writes them. Refusals by the
// scheduler's filters have the filter's name.
const (
	// PodOSSelectorNodeLabelDoesNotMatch is a pod whose kubernetes.io/os label
	// names another operating system.
	PodOSSelectorNodeLabelDoesNotMatch = "PodOSSelectorNodeLabelDoesNotMatch"
	// PodOSNotSupported is a pod whose spec.os names another operating system.
	PodOSNotSupported = "PodOSNotSupported"
	// InvalidNodeInfo is a pod that came while nothing is known about the node.
	InvalidNodeInfo = "InvalidNodeInfo"
	// SupplementalGroupsPolicyNotSupported is a pod that wants Strict on a node
	// whose runtime can't.
	SupplementalGroupsPolicyNotSupported = "SupplementalGroupsPolicyNotSupported"
	// UnexpectedAdmissionError is a decision that could not be made.
	UnexpectedAdmissionError = "UnexpectedAdmissionError"
	// InsufficientResourcePrefix is put before the name of the resource that the
	// node has too little of.
	InsufficientResourcePrefix = "OutOf"
	// OutOfCPU, OutOfMemory, OutOfEphemeralStorage and OutOfPods are the reasons
	// of the common ones.
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

// What the scheduler's filters say when they refuse; the message of a refusal is
// "Predicate NAME failed: " and this.
const (
	nodeAffinityMismatch = "node(s) didn't match Pod's node affinity/selector"
	nodeNameMismatch     = "node(s) didn't match the requested node name"
	nodePortsTaken       = "node(s) didn't have free ports for the requested pod ports"
	taintNotTolerated    = "node(s) had taints that the pod didn't tolerate"
)

// Reasons and messages of pods that have to go.
const (
	// DeadlineExceeded is the reason of a pod that was active for too long, and
	// of the event about it.
	DeadlineExceeded = "DeadlineExceeded"
	// DeadlineExceededMessage goes with it.
	DeadlineExceededMessage = "Pod was active on the node longer than the specified deadline"
	// Preempting is the reason of a pod that made room for a critical one, and
	// of the warning about it.
	Preempting = "Preempting"
	// PreemptingMessage goes with it.
	PreemptingMessage = "Preempted in order to admit critical pod"
)

// Reasons and messages of events about containers and their hooks.
const (
	// Killing is the reason of the normal event when a container is stopped.
	Killing = "Killing"
	// FailedPostStartHook is the reason of the warning about a failed postStart
	// hook; the output of the hook is not in it, for it may hold secrets.
	FailedPostStartHook = "FailedPostStartHook"
	// PostStartHookFailedMessage goes with it.
	PostStartHookFailedMessage = "PostStartHook failed"
	// FailedPreStopHook is the reason of the warning about a failed preStop hook.
	FailedPreStopHook = "FailedPreStopHook"
	// PreStopHookFailedMessage goes with it.
	PreStopHookFailedMessage = "PreStopHook failed"
	// LifecycleHTTPFallback is the reason of the warning when an HTTPS hook was
	// answered in plain HTTP, and worked.
	LifecycleHTTPFallback = "LifecycleHTTPFallback"
)

// CrashLoopMessage is the message beside [CrashLoopBackOff], as the kubelet
// writes it.
func CrashLoopMessage(delay time.Duration, container string, pod *corev1.Pod) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		delay, container, pod.Name, pod.Namespace, pod.UID)
}

// ImagePullMessage is the message beside [ImagePullBackOff], as the kubelet
// writes it; the event BackOff has it too. The image is named as in the spec.
func ImagePullMessage(image string) string { return fmt.Sprintf("Back-off pulling image %q", image) }

// StoppingMessage is the message of the event [Killing] for a container that is
// stopped for no reason of its own.
func StoppingMessage(container string) string { return "Stopping container " + container }
