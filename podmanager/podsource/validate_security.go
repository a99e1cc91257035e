package podsource

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podSecurity checks the security context of the pod and its use of host namespaces. It
// does not check windowsOptions, because a pod that sets them is rejected at admission.
func (v *validator) podSecurity(at *field.Path) {
	s, spec := v.spec.SecurityContext, at
	at = at.Child("securityContext")
	v.id(at.Child("runAsUser"), s.RunAsUser)
	v.id(at.Child("runAsGroup"), s.RunAsGroup)
	v.id(at.Child("fsGroup"), s.FSGroup)
	for i := range s.SupplementalGroups {
		v.id(at.Child("supplementalGroups").Index(i), &s.SupplementalGroups[i])
	}
	optionalOneOf(v, at.Child("supplementalGroupsPolicy"), s.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	optionalOneOf(v, at.Child("fsGroupChangePolicy"), s.FSGroupChangePolicy, corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways)
	optionalOneOf(v, at.Child("seLinuxChangePolicy"), s.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive)
	v.sysctls(at.Child("sysctls"), s.Sysctls)
	v.seccomp(at.Child("seccompProfile"), s.SeccompProfile)
	v.appArmor(at.Child("appArmorProfile"), s.AppArmorProfile)
	if v.spec.HostPID && isTrue(v.spec.ShareProcessNamespace) {
		v.invalid(at.Child("shareProcessNamespace"), true, "must not be true if hostPID is true")
	}
	if v.usesHostUsers() {
		return
	}
	for _, f := range []struct {
		name  string
		given bool
	}{{"hostNetwork", v.spec.HostNetwork}, {"hostPID", v.spec.HostPID}, {"hostIPC", v.spec.HostIPC}} {
		if f.given {
			v.add(field.Forbidden(spec.Child(f.name), "must not be true if hostUsers is false"))
		}
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func isPrivileged(s *corev1.SecurityContext) bool { return s != nil && isTrue(s.Privileged) }

// usesHostUsers reports whether the pod has no user namespace of its own.
func (v *validator) usesHostUsers() bool { return v.spec.HostUsers == nil || *v.spec.HostUsers }

// security checks the security context of a container. s may be nil.
func (v *validator) security(at *field.Path, s *corev1.SecurityContext) {
	if s == nil {
		return
	}
	v.id(at.Child("runAsUser"), s.RunAsUser)
	v.id(at.Child("runAsGroup"), s.RunAsGroup)
	optionalOneOf(v, at.Child("procMount"), s.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
	if s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount && v.usesHostUsers() {
		v.invalid(at.Child("procMount"), *s.ProcMount, "requires hostUsers: false")
	}
	v.seccomp(at.Child("seccompProfile"), s.SeccompProfile)
	v.appArmor(at.Child("appArmorProfile"), s.AppArmorProfile)
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return
	}
	if isPrivileged(s) {
		v.invalid(at, false, "allowPrivilegeEscalation must not be false if privileged is true")
	}
	if s.Capabilities != nil {
		for _, c := range s.Capabilities.Add {
			if c == "CAP_SYS_ADMIN" {
				v.invalid(at, false, "allowPrivilegeEscalation must not be false if CAP_SYS_ADMIN is added")
			}
		}
	}
}

func (v *validator) seccomp(at *field.Path, p *corev1.SeccompProfile) {
	if p == nil {
		return
	}
	v.profileType(at.Child("type"), string(p.Type))
	local := p.Type == corev1.SeccompProfileTypeLocalhost
	switch at := at.Child("localhostProfile"); {
	case local && p.LocalhostProfile == nil:
		v.add(field.Required(at, "must be set if type is Localhost"))
	case local:
		v.relative(at, *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		v.invalid(at, *p.LocalhostProfile, "must only be set if type is Localhost")
	}
}

// profileType checks the type of a seccomp or an AppArmor profile. Both have the same
// types.
func (v *validator) profileType(at *field.Path, kind string) {
	if kind == "" {
		v.add(field.Required(at, ""))
	}
	oneOf(v, at, kind, string(corev1.SeccompProfileTypeLocalhost), string(corev1.SeccompProfileTypeRuntimeDefault), string(corev1.SeccompProfileTypeUnconfined))
}

// maxProfileName is PATH_MAX minus one byte for the terminating NUL.
const maxProfileName = 4095

func (v *validator) appArmor(at *field.Path, p *corev1.AppArmorProfile) {
	if p == nil {
		return
	}
	v.profileType(at.Child("type"), string(p.Type))
	at = at.Child("localhostProfile")
	switch {
	case p.Type == corev1.AppArmorProfileTypeLocalhost && (p.LocalhostProfile == nil || *p.LocalhostProfile == ""):
		v.add(field.Required(at, "must be set if type is Localhost"))
	case p.Type == corev1.AppArmorProfileTypeLocalhost:
		if name := *p.LocalhostProfile; strings.TrimSpace(name) != name {
			v.invalid(at, name, "must not have leading or trailing whitespace")
		}
		if len(*p.LocalhostProfile) > maxProfileName {
			v.add(field.TooLong(at, "", maxProfileName))
		}
	case p.LocalhostProfile != nil && (p.Type == corev1.AppArmorProfileTypeRuntimeDefault || p.Type == corev1.AppArmorProfileTypeUnconfined):
		v.invalid(at, *p.LocalhostProfile, "must only be set if type is Localhost")
	}
}

// The pattern and the maximum length of a sysctl's name, with dots or slashes.
const (
	sysctlName    = `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`
	maxSysctlName = 253
)

func (v *validator) sysctls(at *field.Path, all []corev1.Sysctl) {
	form, seen := regexp.MustCompile(sysctlName), make(map[string]bool)
	for i, s := range all {
		at := at.Index(i).Child("name")
		switch {
		case s.Name == "":
			v.add(field.Required(at, ""))
		case len(s.Name) > maxSysctlName || !form.MatchString(s.Name):
			v.invalid(at, s.Name, "must be the name of a sysctl, such as kernel.shm_rmid_forced")
		case seen[s.Name]:
			v.add(field.Duplicate(at, s.Name))
		}
		seen[s.Name] = true
		name := strings.ReplaceAll(s.Name, "/", ".")
		ofIPC := name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || strings.HasPrefix(name, "fs.mqueue.")
		switch {
		case v.spec.HostNetwork && strings.HasPrefix(name, "net."):
			v.invalid(at, s.Name, "must not be set if hostNetwork is true")
		case v.spec.HostIPC && ofIPC:
			v.invalid(at, s.Name, "must not be set if hostIPC is true")
		}
	}
}
