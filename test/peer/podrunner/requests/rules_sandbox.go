package requests

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// sandboxRules are about the sandbox's configuration.
func sandboxRules() []rule {
	return []rule{
		{
			Name: "host ports of sidecars", Class: judge.DefectOfOurs, Item: "23",
			Sentence: "The kubelet maps the host ports of regular containers only; ours maps those of sidecars, too.",
			Explains: func(s scene) bool {
				return s.Fact == "sandbox/port_mappings" && sidecarsHaveHostPorts(s) && s.Ours == mappings(s, sidecarPorts(s), s.Kubelet)
			},
		},
		{
			Name: "group of a sandbox without a user", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "The kubelet sends the group of a pod that names no user with its sandbox, which the CRI has runtimes refuse; ours leaves the group out there.",
			Explains: func(s scene) bool {
				p := pod(s).Spec.SecurityContext
				return strings.HasPrefix(s.Fact, "sandbox/linux/security_context/run_as_group") && p.RunAsUser == nil && p.RunAsGroup != nil &&
					s.Ours == "" && (s.Kubelet == strconv.FormatInt(*p.RunAsGroup, 10) || *p.RunAsGroup == 0 && s.Kubelet == "{}")
			},
		},
	}
}

// mappings returns the mappings in a list that have a host port, after more of
// them, as text. A pod in the host's network has none.
func mappings(s scene, more []any, list string) string {
	var all []map[string]any
	if list != "" && json.Unmarshal([]byte(list), &all) != nil {
		return "no list"
	}
	for _, m := range all {
		if m["host_port"] != nil {
			more = append(more, m)
		}
	}
	if len(more) == 0 || pod(s).Spec.HostNetwork {
		return ""
	}
	return text(generic(more))
}

func sidecarsHaveHostPorts(s scene) bool {
	return slices.ContainsFunc(sidecarPorts(s), func(any) bool { return !pod(s).Spec.HostNetwork })
}

func sidecarPorts(s scene) (all []any) {
	for i := range pod(s).Spec.InitContainers {
		c := &pod(s).Spec.InitContainers[i]
		if c.RestartPolicy == nil {
			continue
		}
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			protocol := map[corev1.Protocol]runtimeapi.Protocol{corev1.ProtocolUDP: runtimeapi.Protocol_UDP, corev1.ProtocolSCTP: runtimeapi.Protocol_SCTP}[p.Protocol]
			all = append(all, generic(&runtimeapi.PortMapping{Protocol: protocol, ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP}))
		}
	}
	return all
}
