package podrunner

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/podips"
)

// EtcHosts returns the content of /etc/hosts in the pod's containers, as the
// kubelet writes it. The file assigns the pod's hostname to the pod's first
// address of each family, as in the pod's status. For a pod in the host
// network, the file contains the node's own hosts file instead. The pod's host
// aliases follow. EtcHosts is pure. Outside the host network, it returns nil if
// the pod has no address yet, and an error if the hostname is invalid.
func EtcHosts(pod *corev1.Pod, ips []string, node Node) ([]byte, error) {
	ips = podips.Families(ips, node.IPs)
	if !pod.Spec.HostNetwork && len(ips) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(node.HostsFile)
	} else {
		name, domain, err := hostname(pod, node)
		if err != nil {
			return nil, err
		}
		if domain != "" {
			name = name + "." + domain + "\t" + name
		}
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		for _, ip := range ips {
			fmt.Fprintf(&b, "%s\t%s\n", ip, name)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, a := range pod.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return b.Bytes(), nil
}
