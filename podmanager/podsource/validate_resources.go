package podsource

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
)

// resources checks the requests and limits of a container or a pod. The last argument
// reports whether the container or pod may have a resource of the given name.
func (v *validator) resources(at *field.Path, r *corev1.ResourceRequirements, supported func(corev1.ResourceName) bool) {
	for _, name := range sortedKeys(r.Limits) {
		v.amount(at.Child("limits").Key(string(name)), name, r.Limits[name], supported)
	}
	for _, name := range sortedKeys(r.Requests) {
		request, at, limits := r.Requests[name], at.Child("requests").Key(string(name)), at.Child("limits")
		v.amount(at, name, request, supported)
		switch limit, ok := r.Limits[name]; {
		case !ok && !overcommits(name):
			v.add(field.Required(limits, string(name)+" has a request, so it must have a limit"))
		case ok && request.Cmp(limit) != 0 && !overcommits(name):
			v.invalid(at, request.String(), "must be equal to the limit of "+limit.String())
		case ok && request.Cmp(limit) > 0:
			v.invalid(at, request.String(), "must not be more than the limit of "+limit.String())
		}
	}
	names := slices.Concat(sortedKeys(r.Limits), sortedKeys(r.Requests))
	if slices.ContainsFunc(names, isHugePages) && !slices.Contains(names, corev1.ResourceCPU) && !slices.Contains(names, corev1.ResourceMemory) {
		v.add(field.Forbidden(at, "huge pages require cpu or memory"))
	}
}

// amount checks the quantity of a resource.
func (v *validator) amount(at *field.Path, name corev1.ResourceName, amount resource.Quantity, supported func(corev1.ResourceName) bool) {
	if !supported(name) {
		v.invalid(at, string(name), "must be the name of a resource that is supported here")
	}
	if amount.Sign() < 0 {
		v.invalid(at, amount.String(), "must not be negative")
	}
	if isExtended(name) && amount.MilliValue()%1000 != 0 {
		v.invalid(at, amount.String(), "must be an integer")
	}
	if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
		page, err := resource.ParseQuantity(size)
		if err != nil || page.Sign() <= 0 || page.MilliValue()%1000 != 0 || amount.Value()%page.Value() != 0 {
			v.invalid(at, amount.String(), "must be a multiple of the page size")
		}
	}
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNative reports whether a resource is defined by Kubernetes.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// overcommits reports whether a request may be less than the limit.
func overcommits(name corev1.ResourceName) bool { return isNative(name) && !isHugePages(name) }

// isExtended reports whether a device plugin may offer a resource. Resource quotas add
// the prefix "requests." to the name, so the name with the prefix must be valid too.
func isExtended(name corev1.ResourceName) bool {
	const ofQuotas = corev1.DefaultResourceRequestsPrefix
	return !isNative(name) && !strings.HasPrefix(string(name), ofQuotas) && len(validation.IsQualifiedName(ofQuotas+string(name))) == 0
}

// isContainerResource reports whether a container may have a resource.
func isContainerResource(name corev1.ResourceName) bool {
	switch {
	case len(validation.IsQualifiedName(string(name))) > 0:
		return false
	case strings.Contains(string(name), "/"):
		return isNative(name) || isExtended(name)
	default:
		return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || isHugePages(name)
	}
}

// isPodResource reports whether a pod as a whole may have a resource.
func isPodResource(name corev1.ResourceName) bool {
	return len(validation.IsQualifiedName(string(name))) == 0 && resourcehelper.IsSupportedPodLevelResource(name)
}

// podResources checks the pod-level resources, also against the resources of the
// containers (KEP-2837).
func (v *validator) podResources(at *field.Path) {
	r := v.spec.Resources
	if r == nil {
		return
	}
	v.resources(at, r, isPodResource)
	pod := &corev1.Pod{Spec: *v.spec}
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range sortedKeys(requests) {
		sum := requests[name]
		if own, ok := r.Requests[name]; ok && sum.Cmp(own) > 0 {
			v.invalid(at.Child("requests").Key(string(name)), own.String(), "must not be less than the sum of the containers, "+sum.String())
		}
	}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range sortedKeys(limits) {
		sum := limits[name]
		if own, ok := r.Limits[name]; ok && isHugePages(name) && sum.Cmp(own) > 0 {
			v.invalid(at.Child("limits").Key(string(name)), own.String(), "must not be less than the sum of the containers, "+sum.String())
		}
	}
	for i, c := range v.spec.Containers {
		for _, name := range sortedKeys(c.Resources.Limits) {
			limit := c.Resources.Limits[name]
			if own, ok := r.Limits[name]; ok && limit.Cmp(own) > 0 {
				v.invalid(at.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(), "must not be more than the pod's limit of "+own.String())
			}
		}
	}
}

// resizePolicy checks the container's policy for in-place resizes (KEP-1287).
func (v *validator) resizePolicy(at *field.Path, policies []corev1.ContainerResizePolicy) {
	seen := make(map[corev1.ResourceName]bool)
	for i, p := range policies {
		if seen[p.ResourceName] {
			v.add(field.Duplicate(at.Index(i), p.ResourceName))
		}
		seen[p.ResourceName] = true
		v.required(at, string(p.ResourceName))
		oneOf(v, at, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		v.required(at, string(p.RestartPolicy))
		oneOf(v, at, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if v.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			v.invalid(at, p.RestartPolicy, "must be NotRequired, because the pod's restartPolicy is Never")
		}
	}
}
