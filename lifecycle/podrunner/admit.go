package podrunner

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Reasons why a pod can never run on the node, with the kubelet's names.
const (
	// SysctlForbidden means that the pod sets a sysctl that is not allowed.
	SysctlForbidden = "SysctlForbidden"
	// AppArmorUnavailable means that AppArmor is not enabled on the node.
	AppArmorUnavailable = "AppArmor"
	// PodOSNotSupported means that the pod is for another operating system.
	PodOSNotSupported = "PodOSNotSupported"
	// SupplementalGroupsPolicyNotSupported means that the runtime does not
	// support the pod's supplemental groups policy.
	SupplementalGroupsPolicyNotSupported = "SupplementalGroupsPolicyNotSupported"
)

// AdmissionError describes why a pod can never run on the node. The caller must
// set the pod's phase to Failed.
type AdmissionError struct {
	Reason, Message string
}

// Error returns reason and message.
func (r *AdmissionError) Error() string { return r.Reason + ": " + r.Message }

// Admit returns an [*AdmissionError] if the pod can never run on the node, else
// nil. It is pure. Call Admit in an admission handler of package lifecycle,
// which rejects the pod with this reason and message.
func Admit(pod *corev1.Pod, node Node) error {
	if os := pod.Spec.OS; os != nil && os.Name != corev1.Linux {
		return &AdmissionError{PodOSNotSupported, "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if p := pod.Spec.SecurityContext; p != nil {
		for _, s := range p.Sysctls {
			if err := checkSysctl(s.Name, pod, node.UnsafeSysctls); err != nil {
				return &AdmissionError{SysctlForbidden, "forbidden sysctl: " + err.Error()}
			}
		}
		if g := p.SupplementalGroupsPolicy; g != nil && *g != corev1.SupplementalGroupsPolicyMerge && !node.Runtime.GetSupplementalGroupsPolicy() {
			return &AdmissionError{SupplementalGroupsPolicyNotSupported, fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", *g)}
		}
	}
	if !node.AppArmor {
		for c := range podspec.Containers(&pod.Spec) {
			if p := appArmorProfile(pod, c); p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined {
				return &AdmissionError{AppArmorUnavailable, "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
			}
		}
	}
	return nil
}

// safeSysctls returns the sysctls that every pod may set. These sysctls belong
// to a namespace of the pod and do not affect other pods (Kubernetes'
// documentation on sysctls).
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
	}
}

// checkSysctl returns an error if the sysctl is not allowed, or if it would
// change the node instead of the pod.
func checkSysctl(name string, pod *corev1.Pod, allowed []string) error {
	name = dotted(name)
	listed := func(pattern string) bool {
		prefix, any := strings.CutSuffix(dotted(pattern), "*")
		return name == prefix || any && strings.HasPrefix(name, prefix)
	}
	namespace := sysctlNamespace(name)
	switch {
	case namespace == "" || !slices.Contains(safeSysctls(), name) && !slices.ContainsFunc(allowed, listed):
		return fmt.Errorf("%q not allowlisted", name)
	case namespace == "ipc" && pod.Spec.HostIPC, namespace == "net" && pod.Spec.HostNetwork:
		return fmt.Errorf("%q not allowed with host %s enabled", name, namespace)
	}
	return nil
}

// sysctlNamespace returns the namespace to which a sysctl belongs, "ipc" or
// "net". It returns "" if the sysctl belongs to the node.
func sysctlNamespace(name string) string {
	switch {
	case name == "kernel.sem", strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), strings.HasPrefix(name, "fs.mqueue."):
		return "ipc"
	case strings.HasPrefix(name, "net."):
		return "net"
	}
	return ""
}

// dotted returns a sysctl name with dots between its parts (sysctl.d(5)): if
// the first separator is a slash, slashes and dots are swapped.
func dotted(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return r
	}, name)
}

func sysctls(pod *corev1.Pod) map[string]string {
	p := pod.Spec.SecurityContext
	if p == nil || len(p.Sysctls) == 0 {
		return nil
	}
	out := make(map[string]string, len(p.Sysctls))
	for _, s := range p.Sysctls {
		out[dotted(s.Name)] = s.Value
	}
	return out
}
