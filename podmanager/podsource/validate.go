package podsource

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validator collects the validation errors of one pod whose defaults are set, or of one
// ConfigMap or Secret.
type validator struct {
	errs      field.ErrorList
	spec      *corev1.PodSpec
	volumes   map[string]bool   // names of the declared volumes
	names     map[string]bool   // names of the containers checked so far
	hostPorts map[hostPort]bool // host ports of containers that run at the same time
}

// validatePod returns the validation errors of a pod. The pod must have its defaults, but
// not yet its name and UID on the node. validatePod checks only what a node can check. It
// does not check whether the objects exist to which the pod refers, or the rules of
// admission plugins.
func validatePod(pod *corev1.Pod, nodeName string) field.ErrorList {
	v := &validator{
		spec:    &pod.Spec,
		volumes: make(map[string]bool),
		names:   make(map[string]bool),
	}
	v.metadata(pod, nodeName)
	v.podSpec(field.NewPath("spec"))
	return v.errs
}

func (v *validator) add(err ...*field.Error) { v.errs = append(v.errs, err...) }

// invalid adds an error about the value for each message.
func (v *validator) invalid(path *field.Path, value any, msgs ...string) {
	for _, msg := range msgs {
		v.add(field.Invalid(path, value, msg))
	}
}

// sortedKeys returns a map's keys in order, so that errors have a stable order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// named checks a required name.
func (v *validator) named(path *field.Path, name string, check func(string) []string) {
	if name == "" {
		v.add(field.Required(path, ""))
		return
	}
	v.invalid(path, name, check(name)...)
}

// oneOf checks that value is one of the allowed values. It accepts the empty value, which
// the caller must check.
func oneOf[T ~string](v *validator, path *field.Path, value T, allowed ...T) {
	if value != "" && !slices.Contains(allowed, value) {
		v.add(field.NotSupported(path, value, allowed))
	}
}

// optionalOneOf checks that value, if it is not nil, points to one of the allowed values.
func optionalOneOf[T ~string](v *validator, path *field.Path, value *T, allowed ...T) {
	if value != nil && !slices.Contains(allowed, *value) {
		v.add(field.NotSupported(path, *value, allowed))
	}
}

// between checks that an integer is in a range. It accepts nil.
func between[T int32 | int64](v *validator, path *field.Path, value *T, low, high T) {
	switch {
	case value == nil:
	case *value < low || *value > high:
		v.invalid(path, int64(*value), validation.InclusiveRangeError(int(low), int(high)))
	}
}

// id checks the ID of a user or group. Without the upper limit, the system could truncate an
// ID to 32 bits, and the result could be the ID of root.
func (v *validator) id(path *field.Path, value *int64) { between(v, path, value, 0, math.MaxInt32) }

func (v *validator) metadata(pod *corev1.Pod, nodeName string) {
	at := field.NewPath("metadata")
	v.named(at.Child("name"), pod.Name, validation.IsDNS1123Subdomain)
	if full := staticName(pod.Name, nodeName); len(full) > validation.DNS1123SubdomainMaxLength {
		v.invalid(at.Child("name"), pod.Name, "together with the name of the node, "+validation.MaxLenError(validation.DNS1123SubdomainMaxLength))
	}
	v.named(at.Child("namespace"), pod.Namespace, validation.IsDNS1123Label)
	if pod.UID != "" {
		v.invalid(at.Child("uid"), string(pod.UID), checkUID(string(pod.UID))...)
	}
	v.add(metav1validation.ValidateLabels(pod.Labels, at.Child("labels"))...)
	v.annotations(at.Child("annotations"), pod.Annotations)
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		v.add(field.Forbidden(at.Child("annotations").Key(corev1.MirrorPodAnnotationKey), "a static pod must not be marked as a mirror pod"))
	}
	if pod.DeletionTimestamp != nil {
		v.add(field.Forbidden(at.Child("deletionTimestamp"), "remove the manifest instead"))
	}
	if pod.DeletionGracePeriodSeconds != nil {
		v.add(field.Forbidden(at.Child("deletionGracePeriodSeconds"), "remove the manifest instead"))
	}
}

// checkUID checks that a UID is safe to use as the name of a folder.
func checkUID(uid string) []string {
	if msgs := validation.IsValidLabelValue(uid); len(msgs) > 0 {
		return msgs
	}
	if strings.Contains(uid, "_") {
		return []string{"must not contain an underscore, which is a separator in log paths"}
	}
	return nil
}

func (v *validator) podSpec(at *field.Path) {
	s := v.spec
	oneOf(v, at.Child("restartPolicy"), s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	oneOf(v, at.Child("dnsPolicy"), s.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	v.dns(at.Child("dnsConfig"))
	between(v, at.Child("terminationGracePeriodSeconds"), s.TerminationGracePeriodSeconds, 0, math.MaxInt64)
	between(v, at.Child("activeDeadlineSeconds"), s.ActiveDeadlineSeconds, 1, math.MaxInt32)
	v.host(at)
	v.tolerations(at.Child("tolerations"))
	v.podSecurity(at)
	v.podResources(at.Child("resources"))
	v.resources(at.Child("overhead"), &corev1.ResourceRequirements{Limits: s.Overhead}, isContainerResource)
	for i := range s.Volumes {
		v.volume(at.Child("volumes").Index(i), &s.Volumes[i])
	}
	for i := range s.InitContainers {
		v.initContainer(at.Child("initContainers").Index(i), &s.InitContainers[i])
	}
	if len(s.Containers) == 0 {
		v.add(field.Required(at.Child("containers"), "a pod must have at least one container"))
	}
	v.hostPorts = make(map[hostPort]bool)
	for i := range s.Containers {
		at := at.Child("containers").Index(i)
		v.container(at, &s.Containers[i])
		if s.HostNetwork {
			v.hostNetworkPorts(at.Child("ports"), s.Containers[i].Ports)
		}
	}
	if len(s.EphemeralContainers) > 0 {
		v.add(field.Forbidden(at.Child("ephemeralContainers"), "ephemeral containers can only be added to a running pod"))
	}
}
