package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations in which the kubelet records where a pod came from.
const (
	// SourceAnnotation contains the pod's source, such as [SourceAPI].
	SourceAnnotation = "kubernetes.io/config.source"
	// HashAnnotation contains the hash of the pod as its source defines it.
	HashAnnotation = "kubernetes.io/config.hash"
	// SeenAnnotation contains the time at which the agent first read the pod
	// from its source, in RFC 3339.
	SeenAnnotation = "kubernetes.io/config.seen"
	// MirrorAnnotation marks the mirror pod of a static pod.
	MirrorAnnotation = corev1.MirrorPodAnnotationKey
)

// The kubelet's names of pod sources, which are the values of
// [SourceAnnotation].
const (
	// SourceFile is the source of pods from manifests on the node.
	SourceFile = "file"
	// SourceHTTP is the source of pods from manifests at a URL.
	SourceHTTP = "http"
	// SourceAPI is the API server.
	SourceAPI = "api"
)

// IsStatic reports whether the pod has a source other than [SourceAPI]. A pod
// without a source annotation is not static.
func IsStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[SourceAnnotation]
	return ok && source != SourceAPI
}

// IsMirror reports whether the pod is a mirror pod, which represents a static
// pod in the API server.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[MirrorAnnotation]
	return ok
}

// FullName returns "name_namespace". Pods with different names or namespaces
// have different full names, because neither can contain an underscore.
func FullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

// IsTerminal reports whether the phase is terminal: Succeeded or Failed.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// IsSidecar reports whether the init container c is a sidecar: its own restart
// policy is Always (KEP-753).
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// ContainerReference returns the object reference for events about a container
// of the pod: a reference to the pod with a field path such as
// spec.containers{name}. If the spec has no container with that name, the field
// path is empty.
func ContainerReference(pod *corev1.Pod, name string) *corev1.ObjectReference {
	path := ""
	for c, init := range Containers(&pod.Spec) {
		switch {
		case c.Name != name:
		case init:
			path = "spec.initContainers{" + name + "}"
		default:
			path = "spec.containers{" + name + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			path = "spec.ephemeralContainers{" + name + "}"
		}
	}
	return &corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: path,
	}
}

// Containers yields the init containers and then the regular containers, in
// spec order. The bool reports whether the container is an init container. The
// pointers point into the spec.
func Containers(spec *corev1.PodSpec) iter.Seq2[*corev1.Container, bool] {
	return func(yield func(*corev1.Container, bool) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i], true) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], false) {
				return
			}
		}
	}
}

// Container returns the init or regular container with the given name, or nil
// if the spec has no such container. The pointer points into the spec.
func Container(spec *corev1.PodSpec, name string) *corev1.Container {
	for c := range Containers(spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// RuntimeID returns the ID that the runtime uses for a container. id is the
// container's ID in the pod's status, which begins with the runtime's name, as
// in "containerd://4f5e".
func RuntimeID(id string) string {
	if _, bare, found := strings.Cut(id, "://"); found {
		return bare
	}
	return id
}

// ShouldRestart reports whether c must be restarted after it has ended with
// exitCode. If c has its own restart policy, the restart rules of c decide
// first (KEP-5307). If no rule matches, the policy of c decides. If c has no
// policy, its rules are ignored and the pod's policy decides. An unknown policy
// means Always, as in the kubelet. A rule with an unknown action or operator
// never matches.
func ShouldRestart(pod *corev1.Pod, c *corev1.Container, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		for _, r := range c.RestartPolicyRules {
			if r.ExitCodes != nil && matches(r.ExitCodes, exitCode) && restarts(r.Action) {
				return true
			}
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	default: // RestartPolicyAlways
		return true
	}
}

// restarts reports whether the action restarts the container itself. Both
// actions of the API restart it.
func restarts(action corev1.ContainerRestartRuleAction) bool {
	return action == corev1.ContainerRestartRuleActionRestart ||
		action == corev1.ContainerRestartRuleActionRestartAllContainers
}

func matches(codes *corev1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	in := slices.Contains(codes.Values, exitCode)
	switch codes.Operator {
	case corev1.ContainerRestartRuleOnExitCodesOpIn:
		return in
	case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !in
	default:
		return false
	}
}

// ContainerHash returns a hash of the container's spec. The hash does not cover
// the resources and the resize policy, which may change while the container
// runs. The hash depends only on the JSON form of the container, so every
// process computes the same hash. If a later version of the API adds a field,
// the hash changes only if the field is set.
func ContainerHash(c *corev1.Container) string {
	stripped := *c
	stripped.Resources = corev1.ResourceRequirements{}
	stripped.ResizePolicy = nil
	return Hash(stripped)
}

// KubeletHash returns the hash by which the kubelet (1.31 and later) recognizes
// a container: FNV-1a, 32 bits, in hexadecimal. The hash input is a JSON object
// with the container's name and image. The bytes of the object are formatted as
// decimal numbers, as %d of Go's fmt does.
func KubeletHash(c *corev1.Container) string {
	data, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		return "" // cannot happen
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "([]uint8)%d", data)
	return strconv.FormatUint(uint64(hash.Sum32()), 16)
}

// Hash returns a hash of v's JSON form: 16 hexadecimal digits.
func Hash(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		// API types can always be marshalled. Other values get a constant hash,
		// so they never seem to change.
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
