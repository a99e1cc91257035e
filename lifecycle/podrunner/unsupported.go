package podrunner

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Unsupported returns an error that names every field of the pod that this
// package can't honour yet, or nil. A pod with such fields is to be refused
// whole: running it without its volumes or hooks would be another pod
// than the one that was asked for.
func Unsupported(pod *corev1.Pod) error {
	var u unsupported
	u.pod(&pod.Spec)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		path := fmt.Sprintf("spec.initContainers[%d]", i)
		u.container(path, c)
	}
	for i := range pod.Spec.Containers {
		u.container(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i])
	}
	return errors.Join(u...)
}

type unsupported []error

func (u *unsupported) when(set bool, path string) {
	if set {
		*u = append(*u, fmt.Errorf("%s: not supported", path))
	}
}

func (u *unsupported) pod(s *corev1.PodSpec) {
	u.when(len(s.Volumes) > 0, "spec.volumes")
	u.when(len(s.ImagePullSecrets) > 0, "spec.imagePullSecrets")
	u.when(s.RuntimeClassName != nil && *s.RuntimeClassName != "", "spec.runtimeClassName")
	u.when(s.HostUsers != nil && !*s.HostUsers, "spec.hostUsers")
	u.when(s.ActiveDeadlineSeconds != nil, "spec.activeDeadlineSeconds")
	u.when(len(s.HostAliases) > 0, "spec.hostAliases")
	u.when(len(s.ResourceClaims) > 0, "spec.resourceClaims")
	u.when(len(s.ReadinessGates) > 0, "spec.readinessGates")
	u.when(s.OS != nil && s.OS.Name != corev1.Linux, "spec.os")
	if c := s.SecurityContext; c != nil {
		u.when(len(c.Sysctls) > 0, "spec.securityContext.sysctls")
		u.when(c.WindowsOptions != nil, "spec.securityContext.windowsOptions")
		u.when(c.SupplementalGroupsPolicy != nil && *c.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyMerge,
			"spec.securityContext.supplementalGroupsPolicy")
	}
}

func (u *unsupported) container(path string, c *corev1.Container) {
	u.when(len(c.VolumeMounts) > 0, path+".volumeMounts")
	u.when(len(c.VolumeDevices) > 0, path+".volumeDevices")
	if l := c.Lifecycle; l != nil {
		u.when(l.PostStart != nil, path+".lifecycle.postStart")
		u.when(l.PreStop != nil, path+".lifecycle.preStop")
	}
	u.when(len(c.Resources.Claims) > 0, path+".resources.claims")
	u.resources(path+".resources.requests", c.Resources.Requests)
	u.resources(path+".resources.limits", c.Resources.Limits)
	for i, e := range c.Env {
		u.when(e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil, fmt.Sprintf("%s.env[%d].valueFrom.fileKeyRef", path, i))
	}
	if s := c.SecurityContext; s != nil {
		u.when(s.WindowsOptions != nil, path+".securityContext.windowsOptions")
	}
}

// resources names devices: nobody here hands them out. Ephemeral storage is for
// eviction.
func (u *unsupported) resources(path string, list corev1.ResourceList) {
	for _, name := range sortedKeys(list) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			u.when(!strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix), fmt.Sprintf("%s[%s]", path, name))
		}
	}
}
