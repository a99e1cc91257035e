// Package podips chooses among the addresses of a pod those that others are told.
package podips

import (
	"net"

	netutils "k8s.io/utils/net"
)

// Families returns the first address of each family in its canonical form, that of the
// family of prefer's first address first. It is pure. Text that is no address is left
// out; an IPv4 address may have leading zeros, as in the kubelet.
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
