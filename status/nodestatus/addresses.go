package nodestatus

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Addresses are what is known of a node's addresses. Each is one of this machine: callers
// leave out others.
type Addresses struct {
	// Hostname is the name of the node in its network. One that is an IP address is
	// also the address of the node, unless NodeIPs has one.
	Hostname string
	// NodeIPs are the addresses that the user has chosen, one or one of each family, the
	// primary first. An unspecified address, 0.0.0.0 or ::, chooses a family only.
	NodeIPs []netip.Addr
	// Resolved are the addresses of the node's name, as DNS returns them.
	Resolved []netip.Addr
	// Default is the address of the interface that has the default route, in the family that
	// NodeIPs chooses. The zero Addr means unknown.
	Default netip.Addr
	// ExternalCloudProvider means that a cloud controller writes the addresses. It finds those
	// that the agent has written first, and they are not written again.
	ExternalCloudProvider bool
}

// setAddresses sets the addresses of the node. Without an IP address, the previous ones stay.
func setAddresses(s *corev1.NodeStatus, a Addresses) {
	if a.ExternalCloudProvider && len(s.Addresses) > 0 {
		return
	}
	ips, waitsForCloud := a.ips(), a.ExternalCloudProvider && len(a.NodeIPs) == 0
	if len(ips) == 0 && !waitsForCloud {
		return
	}
	s.Addresses = nil
	for _, ip := range ips {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.Unmap().String()})
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: a.Hostname})
}

// ips returns the node's own addresses: those of the user, else the first source that has one.
func (a Addresses) ips() []netip.Addr {
	var primary netip.Addr
	if len(a.NodeIPs) > 0 {
		primary = a.NodeIPs[0].Unmap()
	}
	if primary.IsValid() && !primary.IsUnspecified() {
		return slices.DeleteFunc(slices.Clone(a.NodeIPs[:min(2, len(a.NodeIPs))]), func(ip netip.Addr) bool {
			return !ip.IsValid() || ip.Unmap().IsUnspecified()
		})
	}
	if a.ExternalCloudProvider && !primary.IsValid() {
		return nil
	}
	if ip, err := netip.ParseAddr(a.Hostname); err == nil {
		return []netip.Addr{ip}
	}
	if len(a.Resolved) > 0 {
		prefer4 := !primary.IsValid() || primary.Is4()
		i := slices.IndexFunc(a.Resolved, func(ip netip.Addr) bool { return ip.Unmap().Is4() == prefer4 })
		return []netip.Addr{a.Resolved[max(0, i)]}
	}
	if a.Default.IsValid() {
		return []netip.Addr{a.Default}
	}
	return nil
}
