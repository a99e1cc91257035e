package status

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// setIPs sets the addresses of host and pod. A pod on the node's network has the
// node's addresses, as they were when it first had them: they change only by
// gaining a second family. The addresses of a pod that has ended stay.
func setIPs(s, old *corev1.PodStatus, in *Input) {
	node := families(in.NodeIPs, in.NodeIPs)
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
		ips = families(ips, ips)
	} else {
		ips = families(ips, in.NodeIPs)
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

// families returns the first address of each family in its canonical form, that
// of the family of prefer's first address first. What is no address is left out.
func families(ips, prefer []string) []string {
	var v4, v6 string
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			continue
		}
		addr = addr.Unmap()
		switch {
		case addr.Is4() && v4 == "":
			v4 = addr.String()
		case addr.Is6() && v6 == "":
			v6 = addr.String()
		}
	}
	first, second := v4, v6
	if sixFirst(prefer) {
		first, second = v6, v4
	}
	out := make([]string, 0, 2)
	for _, ip := range []string{first, second} {
		if ip != "" {
			out = append(out, ip)
		}
	}
	return out
}

func sixFirst(ips []string) bool {
	for _, ip := range ips {
		if addr, err := netip.ParseAddr(ip); err == nil {
			return addr.Unmap().Is6()
		}
	}
	return false
}
