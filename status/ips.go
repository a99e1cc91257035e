package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/podips"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// setIPs sets the addresses of host and pod. If the runtime reports no address, these pods keep
// their addresses: a terminated pod, also after a restart of the agent, and a pod whose state in
// the runtime is unknown or stale. For a pod on the host network, other rules apply:
//
//   - If the runtime reports no address, the pod has the addresses of the node. If these are
//     unknown, the pod keeps its previous addresses.
//   - If the runtime reports an address of only one family and the node's second address is of
//     the other family, the second address is added.
func setIPs(s, old *corev1.PodStatus, in *Input) {
	node := podips.Families(in.NodeIPs, in.NodeIPs)
	for _, ip := range node {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(node) == 0 { // unknown: keep the previous addresses
		s.HostIPs = slices.Clone(old.HostIPs)
	}
	var ips []string
	if in.Runtime != nil {
		ips = in.Runtime.IPs
	}
	ended := in.Terminal || podspec.IsTerminal(old.Phase)
	if len(ips) == 0 && !in.Pod.Spec.HostNetwork && (ended || in.keepPrevious()) {
		for _, ip := range old.PodIPs {
			ips = append(ips, ip.IP)
		}
	}
	ips = podips.Families(ips, in.NodeIPs)
	if in.Pod.Spec.HostNetwork && len(ips) == 0 {
		ips = node
	} else if in.Pod.Spec.HostNetwork && len(node) == 2 {
		ips = podips.Families(append(ips, node[1]), ips)
	}
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) == 0 && in.Pod.Spec.HostNetwork {
		s.PodIPs = slices.Clone(old.PodIPs)
	}
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}
