package podrunner

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// sandboxSecurity returns the pod-level security context.
func sandboxSecurity(pod *corev1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod),
		// The sandbox runs nothing of the pod's: it needs no exception.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	for c := range podspec.Containers(&pod.Spec) {
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
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
func containerSecurity(pod *corev1.Pod, c *corev1.Container, image *runtimeapi.Image) *runtimeapi.LinuxContainerSecurityContext {
	sc := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod),
		Seccomp:          seccomp(pod.Spec.SecurityContext, c.SecurityContext),
		MaskedPaths:      maskedPaths(),
		ReadonlyPaths:    readonlyPaths(),
	}
	if p := pod.Spec.SecurityContext; p != nil {
		sc.SupplementalGroups = groups(p)
	}
	user, group, _ := runAs(pod, c)
	sc.RunAsUser, sc.RunAsGroup = value(user), value(group)
	if user == nil && group != nil { // CRI takes a group only with a user: the image's
		sc.RunAsUser, sc.RunAsUsername = image.GetUid(), image.GetUsername()
		if sc.RunAsUser == nil && sc.RunAsUsername == "" {
			sc.RunAsUser = &runtimeapi.Int64Value{} // root
		}
	}
	s := c.SecurityContext
	if s == nil {
		return sc
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

// runAs returns who runs in the container, and whether it may not be root: what
// the container says, and where it says nothing the pod.
func runAs(pod *corev1.Pod, c *corev1.Container) (user, group *int64, nonRoot bool) {
	var mustNot *bool
	if p := pod.Spec.SecurityContext; p != nil {
		user, group, mustNot = p.RunAsUser, p.RunAsGroup, p.RunAsNonRoot
	}
	if s := c.SecurityContext; s != nil {
		user, group, mustNot = cmp.Or(s.RunAsUser, user), cmp.Or(s.RunAsGroup, group), cmp.Or(s.RunAsNonRoot, mustNot)
	}
	return user, group, mustNot != nil && *mustNot
}

// checkNonRoot refuses a container that would run as root and may not, in the
// kubelet's words.
func checkNonRoot(pod *corev1.Pod, c *corev1.Container, image *runtimeapi.Image) error {
	user, _, nonRoot := runAs(pod, c)
	switch {
	case !nonRoot, user != nil && *user != 0:
		return nil
	case user != nil:
		return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", podID(pod), c.Name)
	case image.GetUid().GetValue() != 0:
		return nil
	case image.GetUid() == nil && image.GetUsername() != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)",
			image.GetUsername(), podID(pod), c.Name)
	default:
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", podID(pod), c.Name)
	}
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
// kubelet's default. One that is not supported becomes the stricter of the two.
func seccomp(pod *corev1.PodSecurityContext, c *corev1.SecurityContext) *runtimeapi.SecurityProfile {
	var p *corev1.SeccompProfile
	if pod != nil {
		p = pod.SeccompProfile
	}
	if c != nil && c.SeccompProfile != nil {
		p = c.SeccompProfile
	}
	if p == nil || p.Type == corev1.SeccompProfileTypeUnconfined {
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
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
