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

// Annotations by which the kubelet tells where a pod came from.
const (
	// SourceAnnotation names the pod's source, such as [SourceAPI].
	SourceAnnotation = "kubernetes.io/config.source"
	// HashAnnotation is the hash of the pod as its source gave it.
	HashAnnotation = "kubernetes.io/config.hash"
	// SeenAnnotation is when the source first gave the pod, in RFC 3339.
	SeenAnnotation = "kubernetes.io/config.seen"
	// MirrorAnnotation marks the API server's image of a static pod.
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

// IsMirror says whether the pod is the API server's image of a static pod.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[MirrorAnnotation]
	return ok
}

// FullName returns "name_namespace", which is unique among the pods of a node
// at a time. Neither part can contain an underscore.
func FullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

// IsTerminal says whether the phase is one that no pod leaves.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// IsSidecar says whether c, an init container, is a restartable one.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// ContainerReference returns what events about a container of the pod are about:
// the pod, with a field path such as spec.containers{name}. A container that the
// spec does not name has no field path.
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

// Containers yields init containers and then regular ones, in spec order, with
// whether each is an init container. The pointers are into the spec.
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

// RuntimeID returns the runtime's ID of a container from the ID in its pod's status, which
// begins with the runtime's name, as "containerd://".
func RuntimeID(id string) string {
	if _, bare, found := strings.Cut(id, "://"); found {
		return bare
	}
	return id
}

// ShouldRestart says whether c is to run again after it has ended with
// exitCode. The container's rules come first (KEP-5307), then its own policy,
// and a container without a policy of its own has none that count. Then the
// pod's policy decides. An unknown policy restarts, as in the kubelet; a rule
// with an unknown action or operator matches nothing.
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

// restarts says whether the container itself runs again by the action; both
// that exist do that.
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

// ContainerHash returns a hash of what makes two versions of a container
// different ones: everything in the spec but its resources, which can change in
// place. It depends on the JSON form of the container alone, and so is the same
// in every process; an empty field that a later version of the API adds does not
// change it.
func ContainerHash(c *corev1.Container) string {
	stripped := *c
	stripped.Resources = corev1.ResourceRequirements{}
	stripped.ResizePolicy = nil
	return Hash(stripped)
}

// KubeletHash returns the hash by which the kubelet (1.31 and later) knows a container
// that it has made: FNV-1a, 32 bits, in hexadecimal, of the bytes of a JSON object with
// the container's name and image, written as Go's decimal numbers.
func KubeletHash(c *corev1.Container) string {
	data, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		return "" // strings always marshal
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "([]uint8)%d", data)
	return strconv.FormatUint(uint64(hash.Sum32()), 16)
}

// Hash returns a hash of v's JSON form: 16 hexadecimal digits.
func Hash(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		// API types always marshal; anything else still gets a constant, and so
		// never looks changed.
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
