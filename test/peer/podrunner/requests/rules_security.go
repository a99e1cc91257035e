package requests

import (
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// securityRules are about security contexts.
func securityRules() []rule {
	return []rule{
		{
			Name: "sysctl names with slashes", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "After the sandbox was created, the kubelet sends the names of sysctls as they are in the pod, even with slashes; this package always sends them with dots.",
			Explains: func(s scene) bool {
				i := strings.Index(s.Fact, "/sandbox/linux/sysctls/")
				if i < 0 || s.Ours != "" {
					return false
				}
				name := s.Fact[i+len("/sandbox/linux/sysctls/"):]
				for _, p := range pod(s).Spec.SecurityContext.Sysctls {
					if strings.Contains(p.Name, "/") && (p.Name == name && s.Kubelet == lastSysctl(s, p.Name) || strings.ReplaceAll(p.Name, "/", ".") == name && s.Kubelet == "(not set)") {
						return true
					}
				}
				return false
			},
		},
	}
}

// lastSysctl is the value of a parameter: the last one wins.
func lastSysctl(s scene, name string) (value string) {
	for _, p := range pod(s).Spec.SecurityContext.Sysctls {
		if p.Name == name {
			value = p.Value
		}
	}
	return value
}
