package main

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// host is what stays as it is as long as this machine runs.
type host struct {
	ips                         []string // see hostIPs
	memory                      int64    // bytes
	appArmor, seLinux, cgroupV2 bool
}

func lookAtHost() host {
	return host{
		ips:      hostIPs(),
		memory:   memoryBytes("/proc/meminfo"),
		appArmor: strings.HasPrefix(fileText("/sys/module/apparmor/parameters/enabled"), "Y"),
		seLinux:  fileText("/sys/fs/selinux/enforce") != "",
		cgroupV2: fileText("/sys/fs/cgroup/cgroup.controllers") != "",
	}
}

// hostIPs returns one address of each family that others may reach this host
// by, IPv4 first; loopback ones if there are no others.
func hostIPs() []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []string{"127.0.0.1"}
	}
	var v4, v6 string
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil && v4 == "":
			v4 = n.IP.String()
		case n.IP.To4() == nil && v6 == "":
			v6 = n.IP.String()
		}
	}
	var ips []string
	for _, ip := range []string{v4, v6} {
		if ip != "" {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return []string{"127.0.0.1"}
	}
	return ips
}

// memoryBytes returns the machine's memory, 0 where there is no meminfo to ask.
func memoryBytes(meminfo string) int64 {
	data, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
