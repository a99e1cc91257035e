package podrunner

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// SandboxConfig returns the CRI configuration of the pod's sandbox. It is pure;
// pod is neither modified nor retained. For a pod that [CheckSandbox] rejects,
// the result is incomplete.
func SandboxConfig(pod *corev1.Pod, attempt uint32, node Node) *runtimeapi.PodSandboxConfig {
	dns, _ := DNSConfig(pod, node)
	bare := *pod // without the overhead, which the runtime adds itself
	bare.Spec.Overhead = nil
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Uid: string(pod.UID), Namespace: pod.Namespace, Attempt: attempt,
		},
		Labels:       podLabels(pod, node.Agent),
		Annotations:  maps.Clone(pod.Annotations),
		DnsConfig:    dns,
		PortMappings: portMappings(pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: sandboxSecurity(pod, node),
			Sysctls:         sysctls(pod),
			Resources:       cpuAndMemory(podspec.Requests(&bare), podspec.Limits(&bare), node),
		},
	}
	if node.LogRoot != "" {
		config.LogDirectory = LogDirectory(node.LogRoot, pod)
	}
	config.Linux.Overhead = &runtimeapi.LinuxContainerResources{}
	if o := pod.Spec.Overhead; o != nil {
		config.Linux.Overhead = cpuAndMemory(o, o, node)
	}
	if node.CgroupParent != nil {
		config.Linux.CgroupParent = node.CgroupParent(pod)
	}
	if !pod.Spec.HostNetwork {
		config.Hostname, _ = kernelName(pod, node)
	}
	return config
}

// CheckSandbox returns an error that joins every reason why the pod's sandbox
// can't be created, or nil. It is pure. A Runner calls CheckSandbox before it
// creates a sandbox. The result includes the error of [Admit], whose reason is
// permanent. The other reasons may be temporary: for example, a runtime class
// may be added, or user IDs may become free.
func CheckSandbox(pod *corev1.Pod, node Node) error {
	_, errName := kernelName(pod, node)
	_, errHandler := RuntimeHandler(pod, node)
	errs := []error{Admit(pod, node), checkDNS(pod, node), errName, errHandler} // the kubelet reports only the first
	if errHandler == nil {
		errs = append(errs, checkUserNamespace(pod, node))
	}
	if p := pod.Spec.SecurityContext; p != nil {
		_, err := seccomp(p, nil, node)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RuntimeHandler returns the runtime handler of the pod's runtime class. Empty
// means the runtime's default handler.
func RuntimeHandler(pod *corev1.Pod, node Node) (string, error) {
	class := pod.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return "", nil
	}
	if node.RuntimeHandler == nil {
		return "", fmt.Errorf("failed to get RuntimeClass %s: this node has no runtime classes", *class)
	}
	return node.RuntimeHandler(*class)
}

// podLabels returns the pod's labels, the kubelet's labels, and the label with
// the agent's name. The pod's labels do not replace the other labels.
func podLabels(pod *corev1.Pod, agent string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, pod.Labels)
	labels[crilabels.PodName] = pod.Name
	labels[crilabels.PodNamespace] = pod.Namespace
	labels[crilabels.PodUID] = string(pod.UID)
	labels[crilabels.Agent] = agent
	return labels
}

// portMappings returns the ports of regular containers and of sidecars, with or
// without a host port. Other init containers have ended before the ports are
// used. If a container has several ports with the same name, or several equal
// ports without a name, only the first of these ports is returned.
func portMappings(pod *corev1.Pod) (mappings []*runtimeapi.PortMapping) {
	for c, init := range podspec.Containers(&pod.Spec) {
		if init && !podspec.IsSidecar(c) {
			continue
		}
		seen := map[corev1.ContainerPort]bool{}
		for _, p := range c.Ports {
			key := p
			if p.Name != "" {
				key = corev1.ContainerPort{Name: p.Name}
			}
			if seen[key] {
				continue
			}
			seen[key] = true
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
