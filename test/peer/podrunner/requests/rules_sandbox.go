package requests

import (
	"encoding/json"
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
			Name: "host ports of sidecars", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "The kubelet maps only the ports of regular containers, and ignores a host port of a sidecar; this package also maps the host ports of sidecars.",
			Explains: func(s scene) bool {
				ours, err := withSidecarPorts(s, s.Kubelet)
				return strings.HasSuffix(s.Fact, "sandbox/port_mappings") && err == nil && s.Ours == ours
			},
		},
		{
			Name: "sandbox runAsGroup without runAsUser", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "If a pod sets runAsGroup but not runAsUser, the kubelet sends the group in the configuration of the sandbox, although the CRI requires runtimes to refuse this. This package does not send the group.",
			Explains: func(s scene) bool {
				p := pod(s).Spec.SecurityContext
				return strings.HasPrefix(s.Fact, "sandbox/linux/security_context/run_as_group") && p.RunAsUser == nil && p.RunAsGroup != nil &&
					s.Ours == "" && (s.Kubelet == strconv.FormatInt(*p.RunAsGroup, 10) || *p.RunAsGroup == 0 && s.Kubelet == "{}")
			},
		},
	}
}

// withSidecarPorts returns a list of mappings after those of sidecars, as text.
func withSidecarPorts(s scene, list string) (string, error) {
	var all, more []any
	for i := range pod(s).Spec.InitContainers {
		c := &pod(s).Spec.InitContainers[i]
		if c.RestartPolicy == nil {
			continue
		}
		seen := map[corev1.ContainerPort]bool{}
		for _, p := range c.Ports {
			if seen[p] {
				continue
			}
			seen[p] = true
			protocol := map[corev1.Protocol]runtimeapi.Protocol{corev1.ProtocolUDP: runtimeapi.Protocol_UDP, corev1.ProtocolSCTP: runtimeapi.Protocol_SCTP}[p.Protocol]
			all = append(all, generic(&runtimeapi.PortMapping{Protocol: protocol, ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP}))
		}
	}
	if list != "" {
		if err := json.Unmarshal([]byte(list), &more); err != nil {
			return "", err
		}
	}
	return text(append(all, more...)), nil
}
