package podrunner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// sandboxSecurity returns the pod-level security context.
func sandboxSecurity(pod *corev1.Pod, node Node) *runtimeapi.LinuxSandboxSecurityContext {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, node),
		// The sandbox's process runs no program of the pod, so RuntimeDefault
		// is always sufficient.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	for c := range podspec.Containers(&pod.Spec) {
		sc.Privileged = sc.Privileged || isPrivileged(c)
	}
	for i := range pod.Spec.EphemeralContainers {
		sc.Privileged = sc.Privileged || isPrivileged(podspec.Ephemeral(&pod.Spec.EphemeralContainers[i]))
	}
	if p := pod.Spec.SecurityContext; p != nil {
		sc.RunAsUser = value(p.RunAsUser)
		if p.RunAsUser != nil {
			sc.RunAsGroup = value(p.RunAsGroup) // the CRI accepts a group only with a user
		}
		sc.SupplementalGroups, sc.SupplementalGroupsPolicy = groups(p), groupsPolicy(p)
		sc.SelinuxOptions = seLinux(p.SELinuxOptions)
	}
	return sc
}

func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
}

// containerSecurity returns the container's security context, merged with the
// pod's. If procMount is not Unmasked, it sets the masked and read-only paths of
// /proc and /sys, because containerd has no defaults for these paths.
func containerSecurity(pod *corev1.Pod, c *corev1.Container, in Instance, node Node) (*runtimeapi.LinuxContainerSecurityContext, error) {
	profile, err := seccomp(pod.Spec.SecurityContext, c.SecurityContext, node)
	if err != nil {
		return nil, err
	}
	sc := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(pod, node),
		Seccomp:          profile,
		MaskedPaths:      maskedPaths(),
		ReadonlyPaths:    readonlyPaths(),
	}
	if in.TargetID != "" && sc.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		sc.NamespaceOptions.Pid, sc.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, in.TargetID
	}
	if sc.Apparmor, err = appArmor(appArmorProfile(pod, c)); err != nil {
		return nil, err
	}
	sc.ApparmorProfile = oldAppArmor(sc.Apparmor) // Old runtimes read only this field.
	if p := pod.Spec.SecurityContext; p != nil {
		sc.SupplementalGroups, sc.SupplementalGroupsPolicy = groups(p), groupsPolicy(p)
		sc.SelinuxOptions = seLinux(p.SELinuxOptions)
	}
	setUser(sc, pod, c, in.Image)
	s := c.SecurityContext
	if s == nil {
		return sc, nil
	}
	if s.SELinuxOptions != nil {
		sc.SelinuxOptions = seLinux(s.SELinuxOptions)
	}
	sc.ReadonlyRootfs = isTrue(s.ReadOnlyRootFilesystem)
	sc.NoNewPrivs = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	if s.Capabilities != nil {
		sc.Capabilities = &runtimeapi.Capability{
			AddCapabilities: capabilities(s.Capabilities.Add), DropCapabilities: capabilities(s.Capabilities.Drop),
		}
	}
	sc.Privileged = isPrivileged(c)
	if s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount {
		sc.MaskedPaths, sc.ReadonlyPaths = nil, nil
	}
	return sc, nil
}

// setUser sets the user and group that the container or the pod requests. If
// neither requests a user, setUser sets the image's user without the image's
// group, as the kubelet does.
func setUser(sc *runtimeapi.LinuxContainerSecurityContext, pod *corev1.Pod, c *corev1.Container, image *runtimeapi.Image) {
	user, group, _ := runAs(pod, c)
	sc.RunAsUser, sc.RunAsGroup = value(user), value(group)
	if user == nil {
		sc.RunAsUser, sc.RunAsUsername = image.GetUid(), image.GetUsername()
		if sc.RunAsUser == nil && sc.RunAsUsername == "" {
			sc.RunAsUser = &runtimeapi.Int64Value{} // root
		}
	}
}

// runAs returns the user and group of the container, and reports whether the
// container must not run as root. The container's settings take precedence over
// the pod's.
func runAs(pod *corev1.Pod, c *corev1.Container) (user, group *int64, nonRoot bool) {
	var mustNot *bool
	if p := pod.Spec.SecurityContext; p != nil {
		user, group, mustNot = p.RunAsUser, p.RunAsGroup, p.RunAsNonRoot
	}
	if s := c.SecurityContext; s != nil {
		user, group, mustNot = cmp.Or(s.RunAsUser, user), cmp.Or(s.RunAsGroup, group), cmp.Or(s.RunAsNonRoot, mustNot)
	}
	return user, group, isTrue(mustNot)
}

// checkNonRoot returns an error, in the kubelet's words, if the container must
// not run as root, but would or might run as root.
func checkNonRoot(pod *corev1.Pod, c *corev1.Container, image *runtimeapi.Image) error {
	user, _, nonRoot := runAs(pod, c)
	uid := image.GetUid().GetValue()
	switch {
	case !nonRoot, user != nil && *user != 0:
		return nil
	case user != nil:
		return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", podID(pod), c.Name)
	case uid < 0 || uid > math.MaxInt32:
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)): must be between 0 and %d, inclusive (pod: %q, container: %s)",
			uid, math.MaxInt32, math.MaxInt32, podID(pod), c.Name)
	case uid != 0:
		return nil
	case image.GetUid() == nil && image.GetUsername() != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)",
			image.GetUsername(), podID(pod), c.Name)
	default:
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", podID(pod), c.Name)
	}
}

func namespaces(pod *corev1.Pod, node Node) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: networkMode(pod), Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_POD,
		UsernsOptions: userNamespace(pod, node),
	}
	if isTrue(pod.Spec.ShareProcessNamespace) {
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

// seccomp returns the profile that the container or the pod requests, or the
// node's default profile.
func seccomp(pod *corev1.PodSecurityContext, c *corev1.SecurityContext, node Node) (*runtimeapi.SecurityProfile, error) {
	var p *corev1.SeccompProfile
	if pod != nil {
		p = pod.SeccompProfile
	}
	if c != nil && c.SeccompProfile != nil {
		p = c.SeccompProfile
	}
	runtimeDefault := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	switch {
	case p == nil && node.SeccompDefault:
		return runtimeDefault, nil
	case p == nil:
		return unconfined, nil
	}
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		return unconfined, nil
	case corev1.SeccompProfileTypeRuntimeDefault:
		return runtimeDefault, nil
	case corev1.SeccompProfileTypeLocalhost:
		path, err := localhostSeccomp(p.LocalhostProfile, node.SeccompRoot)
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: path}, err
	default:
		return nil, fmt.Errorf("unknown seccompProfile.type %q", p.Type)
	}
}

func localhostSeccomp(profile *string, root string) (string, error) {
	switch {
	case profile == nil || *profile == "":
		return "", errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	case root == "":
		return "", fmt.Errorf("seccomp profile %q: this node has no directory of seccomp profiles", *profile)
	case !filepath.IsLocal(*profile):
		return "", fmt.Errorf("seccomp profile %q: must be a relative path and must not contain '..'", *profile)
	}
	return filepath.Join(root, *profile), nil
}

// appArmorProfile returns the requested profile: the profile in the container's
// security context, in the deprecated annotation, or in the pod's security
// context, in this order.
func appArmorProfile(pod *corev1.Pod, c *corev1.Container) *corev1.AppArmorProfile {
	if s := c.SecurityContext; s != nil && s.AppArmorProfile != nil {
		return s.AppArmorProfile
	}
	switch annotation := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; {
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case strings.HasPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		name := strings.TrimPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if p := pod.Spec.SecurityContext; p != nil {
		return p.AppArmorProfile
	}
	return nil
}

func appArmor(p *corev1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		return nil, nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return nil, errors.New("localhostProfile must be set if appArmorProfile type is Localhost")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}, nil
	default:
		return nil, fmt.Errorf("unknown appArmorProfile.type %q", p.Type)
	}
}

// oldAppArmor returns a profile in the format that old runtimes read.
func oldAppArmor(p *runtimeapi.SecurityProfile) string {
	switch {
	case p == nil:
		return ""
	case p.GetProfileType() == runtimeapi.SecurityProfile_RuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case p.GetProfileType() == runtimeapi.SecurityProfile_Unconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	default:
		return corev1.DeprecatedAppArmorBetaProfileNamePrefix + p.GetLocalhostRef()
	}
}

func seLinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func groups(p *corev1.PodSecurityContext) (all []int64) {
	if p.FSGroup != nil {
		all = append(all, *p.FSGroup)
	}
	return append(all, p.SupplementalGroups...)
}

func groupsPolicy(p *corev1.PodSecurityContext) runtimeapi.SupplementalGroupsPolicy {
	if g := p.SupplementalGroupsPolicy; g != nil && *g == corev1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
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

func isTrue(b *bool) bool { return b != nil && *b }

// maskedPaths returns the paths that are hidden from unprivileged containers,
// the same as in the kubelet.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

// readonlyPaths returns the paths that unprivileged containers can't write to,
// the same as in the kubelet.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
