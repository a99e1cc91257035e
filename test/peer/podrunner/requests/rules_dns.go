package requests

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// dnsRules are about resolv.conf and host names.
func dnsRules() []rule {
	return []rule{
		{
			Name: "warnings about DNS without a sandbox", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "The kubelet warns about a pod's resolv.conf in each sync, even in a sync that starts nothing or that can't create a sandbox. This package warns only when it creates a sandbox.",
			Explains: func(s scene) bool {
				made := strings.Contains(ourFact(s, "calls"), "RunPodSandbox")
				return (s.Fact == "event MissingClusterDNS" || s.Fact == "event DNSConfigForming") && s.Ours == "" && s.Kubelet != "" && !made
			},
		},
		{
			Name: "pod FQDN without a cluster domain", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "If a pod has a subdomain and the node has no cluster domain, the kubelet adds a dot to the end of the pod's full name in the hosts file and in the hostname. This package adds no dot.",
			Explains: func(s scene) bool {
				dotted := "." + pod(s).Spec.Subdomain + "." + pod(s).Namespace + ".svc."
				if s.World.Node.ClusterDomain != "" || pod(s).Spec.Subdomain == "" {
					return false
				}
				if s.Fact == "event FailedCreatePodSandBox" {
					return s.Ours == withoutDot(s, s.Kubelet)
				}
				return (s.Fact == "file etc-hosts" || strings.HasSuffix(s.Fact, "sandbox/hostname")) && s.Kubelet != s.Ours &&
					slices.Contains([]string{s.Kubelet, hostsInOrder(s, s.Kubelet)}, strings.ReplaceAll(s.Ours, strings.TrimSuffix(dotted, "."), dotted))
			},
		},
	}
}

// name is the first part of the pod's full name.
func (w *world) name(p *corev1.Pod) string {
	name := p.Name
	if p.Spec.Hostname != "" {
		name = p.Spec.Hostname
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-.")
}

// withoutDot returns an event about a full name that is too long, changed to a name without a
// trailing dot.
func withoutDot(s scene, event string) string {
	dotted := "." + pod(s).Spec.Subdomain + "." + pod(s).Namespace + ".svc."
	if s.World.Node.ClusterDomain != "" {
		return event
	}
	n := len(s.World.name(pod(s)) + dotted)
	return strings.NewReplacer(dotted, strings.TrimSuffix(dotted, "."), strconv.Itoa(n), strconv.Itoa(n-1)).Replace(event)
}
