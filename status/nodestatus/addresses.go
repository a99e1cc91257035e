package nodestatus

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Addresses are the facts about a node's addresses. All must be addresses of this machine:
// callers must omit other addresses.
type Addresses struct {
	// Hostname is the name of the node in its network. If Hostname is an IP address, and
	// NodeIPs is empty or selects only a family, Hostname is also the address of the node.
	Hostname string
	// NodeIPs are the addresses that the user has configured: one address, or one address of
	// each family, the primary address first. An unspecified address, 0.0.0.0 or ::, selects
	// only a family.
	NodeIPs []netip.Addr
	// Resolved are the addresses that DNS returns for the node's name.
	Resolved []netip.Addr
	// Default is the address of the interface with the default route, in the family that
	// NodeIPs selects. The zero Addr means unknown.
	Default netip.Addr
	// ExternalCloudProvider means that a cloud controller sets the addresses. The agent sets
	// them only while the status has no addresses. If NodeIPs is empty, the agent then sets only
	// the host name.
	ExternalCloudProvider bool
}

// setAddresses sets the addresses of the node, with these exceptions:
//
//   - If a cloud controller sets the addresses, and the status has addresses, they do not change.
//   - If a cloud controller sets the addresses, the status has no addresses and the user has
//     configured no address and no family, setAddresses sets only the host name.
//   - In all other cases without a known IP address, the previous addresses are kept.
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

// ips returns the node's IP addresses: the configured addresses or, if the user has configured no
// address, the first known address of Hostname, Resolved and Default. If the user has configured
// no address and no family, and a cloud controller sets the addresses, ips returns no address.
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
