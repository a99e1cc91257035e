package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/podips"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// setIPs sets the addresses of host and pod. A pod on the node's network has the
// node's addresses, as they were when it first had them: they change only by
// gaining a second family. The addresses of a pod that has ended stay.
func setIPs(s, old *corev1.PodStatus, in *Input) {
	node := podips.Families(in.NodeIPs, in.NodeIPs)
	for _, ip := range node {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(node) == 0 { // nobody knows: what was said stands
		s.HostIPs = slices.Clone(old.HostIPs)
	}
	var ips []string
	if in.Runtime != nil {
		ips = in.Runtime.IPs
	}
	ended := in.Terminal || podspec.IsTerminal(old.Phase)
	if len(ips) == 0 && (ended || in.carried() || in.Pod.Spec.HostNetwork) {
		for _, ip := range old.PodIPs {
			ips = append(ips, ip.IP)
		}
	}
	if in.Pod.Spec.HostNetwork {
		ips = append(slices.Clip(ips), node...)
		ips = podips.Families(ips, ips)
	} else {
		ips = podips.Families(ips, in.NodeIPs)
	}
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}
