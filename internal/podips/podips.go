// Package podips selects the IP addresses for a pod's status: one address per IP family.
package podips

import (
	"net"

	netutils "k8s.io/utils/net"
)

// Families returns the first address of each IP family in ips, in canonical form. The
// result starts with the family of the first valid address in the second list, or with
// IPv4 if the second list has no valid address. Text that is not an address is ignored. An
// IPv4 address may have leading zeros, as in the kubelet.
func Families(ips, prefer []string) []string {
	six := len(prefer) > 0 && isSix(firstOf(prefer, func(net.IP) bool { return true }))
	var all []string
	for _, wanted := range []bool{six, !six} {
		if ip := firstOf(ips, func(ip net.IP) bool { return isSix(ip) == wanted }); ip != nil {
			all = append(all, ip.String())
		}
	}
	return all
}

func firstOf(ips []string, wanted func(net.IP) bool) net.IP {
	for _, text := range ips {
		if ip := netutils.ParseIPSloppy(text); ip != nil && wanted(ip) {
			return ip
		}
	}
	return nil
}

func isSix(ip net.IP) bool { return ip != nil && ip.To4() == nil }
