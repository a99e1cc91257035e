package podrunner

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// Node is what a pod's configuration takes from its node and agent.
type Node struct {
	// Agent marks what is made (see Config.Agent).
	Agent string
	// Name and IPs are the node's.
	Name string
	IPs  []string
	// LogRoot is the folder of all pods' logs.
	LogRoot string
	// MemoryCapacityBytes is the node's memory.
	MemoryCapacityBytes int64
}

// SandboxConfig returns the CRI configuration of the pod's sandbox. It is pure;
// pod is neither changed nor kept.
func SandboxConfig(pod *corev1.Pod, attempt uint32, node Node) *runtimeapi.PodSandboxConfig {
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Uid: string(pod.UID), Namespace: pod.Namespace, Attempt: attempt,
		},
		Labels:       podLabels(pod, node.Agent),
		Annotations:  maps.Clone(pod.Annotations),
		LogDirectory: LogDirectory(node.LogRoot, pod),
		DnsConfig:    dnsConfig(pod),
		PortMappings: portMappings(pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: sandboxSecurity(pod),
		},
	}
	if !pod.Spec.HostNetwork {
		config.Hostname = hostname(pod)
	}
	return config
}

// podLabels returns the pod's own labels with the kubelet's and ours, which win.
func podLabels(pod *corev1.Pod, agent string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, pod.Labels)
	labels[crilabels.PodName] = pod.Name
	labels[crilabels.PodNamespace] = pod.Namespace
	labels[crilabels.PodUID] = string(pod.UID)
	labels[crilabels.Agent] = agent
	return labels
}

// hostname is the pod's hostname, or its name, cut to what a kernel takes.
func hostname(pod *corev1.Pod) string {
	if override := pod.Spec.HostnameOverride; override != nil {
		return *override
	}
	if pod.Spec.Hostname != "" {
		return pod.Spec.Hostname
	}
	const longest = 63
	if len(pod.Name) <= longest {
		return pod.Name
	}
	return strings.TrimRight(pod.Name[:longest], "-.")
}

// dnsConfig returns nil for the policies that mean the host's resolv.conf, which
// a runtime copies by itself. An agent without a cluster has no DNS of one.
func dnsConfig(pod *corev1.Pod) *runtimeapi.DNSConfig {
	spec := pod.Spec.DNSConfig
	if pod.Spec.DNSPolicy != corev1.DNSNone || spec == nil {
		return nil
	}
	config := &runtimeapi.DNSConfig{Servers: spec.Nameservers, Searches: spec.Searches}
	for _, o := range spec.Options {
		option := o.Name
		if o.Value != nil && *o.Value != "" {
			option += ":" + *o.Value
		}
		config.Options = append(config.Options, option)
	}
	return config
}

// portMappings are the host ports of the regular containers, as in the kubelet:
// an init container is gone when somebody calls.
func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	if pod.Spec.HostNetwork {
		return nil // its ports are the host's already
	}
	var mappings []*runtimeapi.PortMapping
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			mappings = append(mappings, &runtimeapi.PortMapping{
				Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	return mappings
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	case corev1.ProtocolTCP:
		return runtimeapi.Protocol_TCP
	default:
		return runtimeapi.Protocol_TCP
	}
}

func networkMode(pod *corev1.Pod) runtimeapi.NamespaceMode {
	if pod.Spec.HostNetwork {
		return runtimeapi.NamespaceMode_NODE
	}
	return runtimeapi.NamespaceMode_POD
}
