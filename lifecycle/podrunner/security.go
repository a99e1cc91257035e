package podrunner

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxSecurity returns the pod-level security context.
func sandboxSecurity(pod *corev1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod),
		Seccomp:          seccomp(pod.Spec.SecurityContext, nil),
	}
	for i := range pod.Spec.Containers {
		if s := pod.Spec.Containers[i].SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			sc.Privileged = true
		}
	}
	if p := pod.Spec.SecurityContext; p != nil {
		sc.RunAsUser = value(p.RunAsUser)
		if p.RunAsUser != nil {
			sc.RunAsGroup = value(p.RunAsGroup) // CRI takes a group only with a user
		}
		sc.SupplementalGroups = groups(p)
	}
	return sc
}

// containerSecurity returns the container's security context over the pod's.
// The masked and read-only paths of /proc and /sys are the agent's to name:
// containerd masks nothing by itself.
func containerSecurity(pod *corev1.Pod, c *corev1.Container) *runtimeapi.LinuxContainerSecurityContext {
	sc := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod),
		Seccomp:          seccomp(pod.Spec.SecurityContext, c.SecurityContext),
		MaskedPaths:      maskedPaths(),
		ReadonlyPaths:    readonlyPaths(),
	}
	if p := pod.Spec.SecurityContext; p != nil {
		sc.RunAsUser, sc.RunAsGroup = value(p.RunAsUser), value(p.RunAsGroup)
		sc.SupplementalGroups = groups(p)
	}
	s := c.SecurityContext
	if s == nil {
		return sc
	}
	if s.RunAsUser != nil {
		sc.RunAsUser = value(s.RunAsUser)
	}
	if s.RunAsGroup != nil {
		sc.RunAsGroup = value(s.RunAsGroup)
	}
	sc.ReadonlyRootfs = s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
	sc.NoNewPrivs = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	if s.Capabilities != nil {
		sc.Capabilities = &runtimeapi.Capability{
			AddCapabilities: capabilities(s.Capabilities.Add), DropCapabilities: capabilities(s.Capabilities.Drop),
		}
	}
	if s.Privileged != nil && *s.Privileged {
		sc.Privileged = true
		sc.MaskedPaths, sc.ReadonlyPaths = nil, nil
	}
	return sc
}

func namespaces(pod *corev1.Pod) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: networkMode(pod), Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_POD,
	}
	if share := pod.Spec.ShareProcessNamespace; share != nil && *share {
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	if pod.Spec.HostPID {
		o.Pid = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	return o
}

// seccomp returns the profile that is asked for; without one, none, which is the
// kubelet's default.
func seccomp(pod *corev1.PodSecurityContext, c *corev1.SecurityContext) *runtimeapi.SecurityProfile {
	var p *corev1.SeccompProfile
	if pod != nil {
		p = pod.SeccompProfile
	}
	if c != nil && c.SeccompProfile != nil {
		p = c.SeccompProfile
	}
	if p != nil && p.Type == corev1.SeccompProfileTypeRuntimeDefault {
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

func groups(p *corev1.PodSecurityContext) []int64 {
	out := append([]int64(nil), p.SupplementalGroups...)
	if p.FSGroup != nil {
		out = append(out, *p.FSGroup)
	}
	return out
}

func capabilities(caps []corev1.Capability) []string {
	var out []string
	for _, c := range caps {
		out = append(out, string(c))
	}
	return out
}

func value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

// maskedPaths are hidden from containers that are not privileged, as the kubelet
// has them.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

// readonlyPaths can't be written by containers that are not privileged, as the
// kubelet has them.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
