package podrunner

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// longestHostname is the kubelet's limit of a hostname in bytes. The kernel's
// limit is 64.
const longestHostname = 63

// hostname returns the pod's hostname, shortened to longestHostname, and the
// pod's domain in the cluster. The domain is empty if the spec has no
// subdomain, or if it has a hostnameOverride.
func hostname(pod *corev1.Pod, node Node) (name, domain string, err error) {
	if override := pod.Spec.HostnameOverride; override != nil {
		if wrong := validation.IsDNS1123Subdomain(*override); len(wrong) > 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *override, strings.Join(wrong, ";"))
		}
		name, err = cutHostname(pod.Name, *override)
		return name, "", err
	}
	name = pod.Name
	if h := pod.Spec.Hostname; h != "" {
		if wrong := validation.IsDNS1123Label(h); len(wrong) > 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", h, strings.Join(wrong, ";"))
		}
		name = h
	}
	if name, err = cutHostname(pod.Name, name); err != nil {
		return "", "", err
	}
	if s := pod.Spec.Subdomain; s != "" {
		if wrong := validation.IsDNS1123Label(s); len(wrong) > 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", s, strings.Join(wrong, ";"))
		}
		domain = strings.TrimSuffix(strings.Join([]string{s, pod.Namespace, "svc", node.ClusterDomain}, "."), ".")
	}
	return name, domain, nil
}

func cutHostname(pod, name string) (string, error) {
	if len(name) <= longestHostname {
		return name, nil
	}
	cut := strings.TrimRight(name[:longestHostname], "-.")
	if cut == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", pod, name)
	}
	return cut, nil
}

// kernelName returns the hostname for the kernel: the pod's hostname, or the
// pod's FQDN if setHostnameAsFQDN is true. For a pod in the host network, it
// returns "".
func kernelName(pod *corev1.Pod, node Node) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	name, domain, err := hostname(pod, node)
	if full := pod.Spec.SetHostnameAsFQDN; err != nil || full == nil || !*full || domain == "" {
		return name, err
	}
	const longest = 64 // the kernel's limit, without the terminating zero
	fqdn := name + "." + domain
	if len(fqdn) > longest {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, longest, len(fqdn))
	}
	return fqdn, nil
}
