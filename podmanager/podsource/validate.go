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

// validator collects what is wrong with one pod that has its defaults.
type validator struct {
	errs      field.ErrorList
	spec      *corev1.PodSpec
	volumes   map[string]bool   // declared
	names     map[string]bool   // of containers so far
	hostPorts map[hostPort]bool // of containers that run together
}

// validatePod returns everything that is wrong with a pod that has its defaults and
// not yet its identity, as far as a node can know: not whether what it refers to
// exists, nor what an admission plugin would say.
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

// invalid adds an error for each of what a check of value complains of.
func (v *validator) invalid(path *field.Path, value any, msgs ...string) {
	for _, msg := range msgs {
		v.add(field.Invalid(path, value, msg))
	}
}

// sortedKeys makes a map's problems come in the same order each time.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// named checks a name that must be there.
func (v *validator) named(path *field.Path, name string, check func(string) []string) {
	if name == "" {
		v.add(field.Required(path, ""))
		return
	}
	v.invalid(path, name, check(name)...)
}

// oneOf checks a value of which there are few. The empty one is the caller's to judge.
func oneOf[T ~string](v *validator, path *field.Path, value T, allowed ...T) {
	if value != "" && !slices.Contains(allowed, value) {
		v.add(field.NotSupported(path, value, allowed))
	}
}

// given checks a value of which there are few and that, if it is there, is not empty.
func given[T ~string](v *validator, path *field.Path, value *T, allowed ...T) {
	if value != nil && !slices.Contains(allowed, *value) {
		v.add(field.NotSupported(path, *value, allowed))
	}
}

// between checks an integer. A missing one is right.
func between[T int32 | int64](v *validator, path *field.Path, value *T, low, high T) {
	switch {
	case value == nil:
	case *value < low || *value > high:
		v.invalid(path, int64(*value), validation.InclusiveRangeError(int(low), int(high)))
	}
}

// id checks the number of a user or group. The system would cut a larger one to 32
// bits, which can make it root's.
func (v *validator) id(path *field.Path, value *int64) { between(v, path, value, 0, math.MaxInt32) }

func (v *validator) metadata(pod *corev1.Pod, nodeName string) {
	at := field.NewPath("metadata")
	v.named(at.Child("name"), pod.Name, validation.IsDNS1123Subdomain)
	if full := staticName(pod.Name, nodeName); len(full) > validation.DNS1123SubdomainMaxLength {
		v.invalid(at.Child("name"), pod.Name, "with the name of the node, "+validation.MaxLenError(validation.DNS1123SubdomainMaxLength))
	}
	v.named(at.Child("namespace"), pod.Namespace, validation.IsDNS1123Label)
	if pod.UID != "" {
		v.invalid(at.Child("uid"), string(pod.UID), checkUID(string(pod.UID))...)
	}
	v.add(metav1validation.ValidateLabels(pod.Labels, at.Child("labels"))...)
	v.annotations(at.Child("annotations"), pod.Annotations)
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		v.add(field.Forbidden(at.Child("annotations").Key(corev1.MirrorPodAnnotationKey), "marks what is not a pod of its own"))
	}
	if pod.DeletionTimestamp != nil {
		v.add(field.Forbidden(at.Child("deletionTimestamp"), "remove the manifest instead"))
	}
	if pod.DeletionGracePeriodSeconds != nil {
		v.add(field.Forbidden(at.Child("deletionGracePeriodSeconds"), "remove the manifest instead"))
	}
}

// checkUID keeps a UID from being more than a name where it becomes one of a
// folder.
func checkUID(uid string) []string {
	if msgs := validation.IsValidLabelValue(uid); len(msgs) > 0 {
		return msgs
	}
	if strings.Contains(uid, "_") {
		return []string{"must not contain an underscore, which parts it from the name in log paths"}
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
	v.resources(at.Child("overhead"), &corev1.ResourceRequirements{Limits: s.Overhead}, isOfContainers)
	for i := range s.Volumes {
		v.volume(at.Child("volumes").Index(i), &s.Volumes[i])
	}
	for i := range s.InitContainers {
		v.initContainer(at.Child("initContainers").Index(i), &s.InitContainers[i])
	}
	if len(s.Containers) == 0 {
		v.add(field.Required(at.Child("containers"), "a pod has at least one"))
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
		v.add(field.Forbidden(at.Child("ephemeralContainers"), "they are added to a pod that runs"))
	}
}
