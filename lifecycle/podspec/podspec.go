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
	// SourceAnnotation is the pod's source, such as [SourceAPI].
	SourceAnnotation = "kubernetes.io/config.source"
	// HashAnnotation is the hash of the pod as defined by its source.
	HashAnnotation = "kubernetes.io/config.hash"
	// SeenAnnotation is when the source first listed the pod, in RFC 3339.
	SeenAnnotation = "kubernetes.io/config.seen"
	// MirrorAnnotation marks the mirror pod of a static pod.
	MirrorAnnotation = corev1.MirrorPodAnnotationKey
)

// The kubelet's names of sources, values of [SourceAnnotation].
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

// IsMirror reports whether the pod is the mirror pod of a static pod in the API
// server.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[MirrorAnnotation]
	return ok
}

// FullName returns "name_namespace", which is unique among the pods of a node
// at a time. Neither part can contain an underscore.
func FullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

// IsTerminal reports whether the phase is terminal: Succeeded or Failed.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// IsSidecar reports whether c, an init container, is a restartable one.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// ContainerReference returns the object reference for events about a container
// of the pod: the pod, with a field path such as spec.containers{name}. If the
// spec has no container of that name, the field path is empty.
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

// Containers yields init containers and then regular ones, in spec order. The
// bool reports whether a container is an init container. The pointers are into
// the spec.
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

// Container returns the init or regular container of the given name, or nil if the spec
// has none. The pointer is into the spec.
func Container(spec *corev1.PodSpec, name string) *corev1.Container {
	for c := range Containers(spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// RuntimeID returns the runtime's ID of a container. The argument is the ID in
// the pod's status, which has the runtime's name as a prefix, as in
// "containerd://".
func RuntimeID(id string) string {
	if _, bare, found := strings.Cut(id, "://"); found {
		return bare
	}
	return id
}

// ShouldRestart reports whether c must run again after it has ended with
// exitCode. The container's rules come first (KEP-5307), then its own policy;
// the rules of a container without its own policy are ignored. Then the pod's
// policy decides. An unknown policy restarts, as in the kubelet; a rule with an
// unknown action or operator matches nothing.
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

// restarts reports whether the action restarts the container itself; both
// existing actions do.
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

// ContainerHash returns a hash of the container's spec without its resources,
// which can change in place. It depends only on the JSON form of the container,
// so it is the same in every process; an empty field that a later version of
// the API adds does not change it.
func ContainerHash(c *corev1.Container) string {
	stripped := *c
	stripped.Resources = corev1.ResourceRequirements{}
	stripped.ResizePolicy = nil
	return Hash(stripped)
}

// KubeletHash returns the hash by which the kubelet (1.31 and later) recognizes
// a container: FNV-1a, 32 bits, in hexadecimal. Its input is a JSON object with
// the container's name and image, whose bytes are formatted as Go's decimal
// numbers.
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
		// API types can always be marshalled. Other values get a constant, and
		// so never seem to change.
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
