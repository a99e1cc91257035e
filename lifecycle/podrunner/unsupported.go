package podrunner

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Unsupported returns an error that names every field of the pod that this
// Runner does not support, either in general or with its Config. It returns nil
// if all fields are supported. If a field is unsupported, the caller must
// reject the whole pod. Otherwise the pod would run without volumes, probes or
// hooks that its user has requested. Unsupported does not check the pod's
// operating system, sysctls, AppArmor profiles and supplemental groups policy;
// [Admit] checks them. The Runner ignores windowsOptions, as the kubelet does
// on Linux. The caller must handle spec.activeDeadlineSeconds (with
// lifecycle.ActiveDeadline) and readiness gates.
func (r *Runner) Unsupported(pod *corev1.Pod) error {
	u := unsupported{cfg: &r.cfg, node: r.node()}
	u.pod(pod)
	for i := range pod.Spec.InitContainers {
		u.container(fmt.Sprintf("spec.initContainers[%d]", i), &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		u.container(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		u.container(fmt.Sprintf("spec.ephemeralContainers[%d]", i), podspec.Ephemeral(&pod.Spec.EphemeralContainers[i]))
	}
	return errors.Join(u.found...)
}

type unsupported struct {
	cfg   *Config
	node  Node
	found []error
}

func (u *unsupported) when(set bool, path string) {
	if set {
		u.found = append(u.found, fmt.Errorf("%s: not supported", path))
	}
}

func (u *unsupported) pod(pod *corev1.Pod) {
	s := &pod.Spec
	for i := range s.Volumes {
		u.when(u.cfg.Volumes == nil && s.Volumes[i].Image == nil, fmt.Sprintf("spec.volumes[%d]", i))
	}
	if u.cfg.Volumes != nil {
		if err := u.cfg.Volumes.Unsupported(pod); err != nil {
			u.found = append(u.found, err)
		}
	}
	u.when(u.node.RuntimeHandler == nil && s.RuntimeClassName != nil && *s.RuntimeClassName != "", "spec.runtimeClassName")
	u.when(u.node.UserNamespace == nil && wantsUserNamespace(pod), "spec.hostUsers")
	u.when(u.cfg.RootDir == "" && len(s.HostAliases) > 0, "spec.hostAliases")
	u.when(len(s.ResourceClaims) > 0, "spec.resourceClaims")
}

func (u *unsupported) container(path string, c *corev1.Container) {
	for i, m := range c.VolumeMounts {
		u.when(u.cfg.RootDir == "" && m.SubPath+m.SubPathExpr != "", fmt.Sprintf("%s.volumeMounts[%d].subPath", path, i))
	}
	u.when(len(c.VolumeDevices) > 0, path+".volumeDevices")
	if u.cfg.Probes == nil {
		u.when(c.LivenessProbe != nil, path+".livenessProbe")
		u.when(c.ReadinessProbe != nil, path+".readinessProbe")
		u.when(c.StartupProbe != nil, path+".startupProbe")
	}
	if l := c.Lifecycle; l != nil && u.cfg.Hooks == nil {
		u.when(l.PostStart != nil, path+".lifecycle.postStart")
		u.when(l.PreStop != nil, path+".lifecycle.preStop")
	}
	u.when(len(c.Resources.Claims) > 0, path+".resources.claims")
	u.resources(path+".resources.requests", c.Resources.Requests)
	u.resources(path+".resources.limits", c.Resources.Limits)
	for i, e := range c.Env {
		u.when(e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil, fmt.Sprintf("%s.env[%d].valueFrom.fileKeyRef", path, i))
	}
}

// resources records in u.found each extended resource in list that the node
// does not have. If Config.Inject is not set, it records all extended
// resources. CPU, memory, ephemeral storage and huge pages are supported.
// Package eviction enforces the limits of ephemeral storage.
func (u *unsupported) resources(path string, list corev1.ResourceList) {
	for _, name := range sortedKeys(list) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			_, has := u.node.Allocatable[name]
			allocated := has && u.cfg.Inject != nil
			u.when(!allocated && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix), fmt.Sprintf("%s[%s]", path, name))
		}
	}
}
