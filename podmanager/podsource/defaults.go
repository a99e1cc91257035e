package podsource

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// setDefaults sets the defaults that the API server would set for a new pod, as far as a
// node needs them.
func setDefaults(pod *corev1.Pod) {
	switch s := &pod.Status; { // podIP must be the first of podIPs
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	pod.Namespace = cmp.Or(pod.Namespace, corev1.NamespaceDefault)
	spec := &pod.Spec
	spec.RestartPolicy = cmp.Or(spec.RestartPolicy, corev1.RestartPolicyAlways)
	spec.DNSPolicy = cmp.Or(spec.DNSPolicy, corev1.DNSClusterFirst)
	spec.SchedulerName = cmp.Or(spec.SchedulerName, corev1.DefaultSchedulerName)
	switch grace := spec.TerminationGracePeriodSeconds; {
	case grace == nil:
		spec.TerminationGracePeriodSeconds = new(int64(corev1.DefaultTerminationGracePeriodSeconds))
	case *grace < 0:
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	spec.ServiceAccountName = cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = new(corev1.DefaultEnableServiceLinks)
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = new(corev1.PodSecurityContext)
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i], spec.HostNetwork)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i], spec.HostNetwork)
	}
	if spec.Resources != nil {
		defaultPodResources(pod)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	c.TerminationMessagePath = cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		c.Ports[i].Protocol = cmp.Or(c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			c.Ports[i].HostPort = cmp.Or(c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			from.FieldRef.APIVersion = cmp.Or(from.FieldRef.APIVersion, "v1")
		}
	}
	defaultRequests(&c.Resources)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			defaultProbe(probe)
		}
	}
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				defaultHTTPGet(hook.HTTPGet)
			}
		}
	}
}

// defaultRequests sets each missing request to the limit of the same resource.
func defaultRequests(r *corev1.ResourceRequirements) {
	if len(r.Limits) == 0 {
		return
	}
	requests := maps.Clone(r.Limits)
	maps.Copy(requests, r.Requests)
	r.Requests = requests
}

// defaultPodResources sets the missing pod-level resources of a pod that sets at least
// one pod-level resource (KEP-2837). A missing limit of huge pages is computed from the
// containers, except if the pod sets a pod-level request of these huge pages. A missing
// request of CPU or memory is computed from the containers. If no container requests the
// resource, the request is the pod-level limit. A missing request of huge pages is always
// the pod-level limit. If the pod has no pod-level limit of any resource, not even a computed
// limit, no request is set.
func defaultPodResources(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	limits, requests := make(corev1.ResourceList), make(corev1.ResourceList)
	for name, limit := range resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			limits[name] = limit
		}
	}
	maps.Copy(limits, r.Limits)
	if len(limits) == 0 {
		return
	}
	for name, limit := range limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			requests[name] = limit
		}
	}
	for name, request := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if resourcehelper.IsSupportedPodLevelResource(name) && overcommits(name) {
			requests[name] = request
		}
	}
	maps.Copy(requests, r.Requests)
	r.Limits, r.Requests = limits, requests
}

func defaultProbe(p *corev1.Probe) {
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, 1)
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, 10)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil && p.GRPC.Service == nil {
		p.GRPC.Service = new("")
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		get.Path = cmp.Or(get.Path, "/")
		get.Scheme = cmp.Or(get.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultVolume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = new(corev1.EmptyDirVolumeSource)
	}
	mode := func(m **int32) {
		if *m == nil {
			*m = new(corev1.SecretVolumeSourceDefaultMode) // the default is the same for all kinds
		}
	}
	if v.HostPath != nil && v.HostPath.Type == nil {
		v.HostPath.Type = new(corev1.HostPathUnset)
	}
	if v.Secret != nil {
		mode(&v.Secret.DefaultMode)
	}
	if v.ConfigMap != nil {
		mode(&v.ConfigMap.DefaultMode)
	}
	if v.DownwardAPI != nil {
		mode(&v.DownwardAPI.DefaultMode)
		defaultFieldRefs(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		mode(&v.Projected.DefaultMode)
		for i := range v.Projected.Sources {
			if api := v.Projected.Sources[i].DownwardAPI; api != nil {
				defaultFieldRefs(api.Items)
			}
			if token := v.Projected.Sources[i].ServiceAccountToken; token != nil && token.ExpirationSeconds == nil {
				token.ExpirationSeconds = new(int64(60 * 60))
			}
		}
	}
}

func defaultFieldRefs(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			items[i].FieldRef.APIVersion = cmp.Or(items[i].FieldRef.APIVersion, "v1")
		}
	}
}
