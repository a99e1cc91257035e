package requests

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// dnsRules are about resolv.conf and names.
func dnsRules() []rule {
	return []rule{
		{
			Name: "warnings about DNS without a sandbox", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The kubelet warns about a pod's resolv.conf in each turn, even in one that starts nothing or in which no sandbox can be made; ours only when it makes a sandbox.",
			Explains: func(s scene) bool {
				made := strings.Contains(ourFact(s, "calls"), "RunPodSandbox")
				return (s.Fact == "event MissingClusterDNS" || s.Fact == "event DNSConfigForming") && s.Ours == "" && s.Kubelet != "" && !made
			},
		},
		{
			Name: "full name without a cluster domain", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "On a node without a cluster domain the kubelet ends the full name of a pod with a subdomain with a dot, in its hosts file and hostname; ours does not.",
			Explains: func(s scene) bool {
				dotted := "." + pod(s).Spec.Subdomain + "." + pod(s).Namespace + ".svc."
				if s.World.Node.ClusterDomain != "" || pod(s).Spec.Subdomain == "" {
					return false
				}
				if s.Fact == "event FailedCreatePodSandBox" {
					return s.Ours == withoutDot(s, s.Kubelet)
				}
				return (s.Fact == "file etc-hosts" || strings.HasSuffix(s.Fact, "sandbox/hostname")) && s.Kubelet != s.Ours &&
					slices.Contains([]string{s.Ours, hostsInOrder(s, s.Ours)}, strings.ReplaceAll(s.Kubelet, dotted, strings.TrimSuffix(dotted, ".")))
			},
		},
	}
}

// fromHost reports whether the pod's resolv.conf begins with the node's.
func fromHost(s scene) bool {
	switch p := pod(s).Spec.DNSPolicy; {
	case p == corev1.DNSNone:
		return false
	case p == corev1.DNSDefault, p == corev1.DNSClusterFirst && pod(s).Spec.HostNetwork:
		return true
	}
	return len(s.World.Node.ClusterDNS) == 0
}

// emptyHost reports whether the node's file has no server, search domain or option.
func emptyHost(s scene) bool {
	for _, line := range hostLines(s) {
		if line[0] == "nameserver" || line[0] == "options" && len(line) > 1 || line[0] == "search" && strings.Join(line[1:], "") != "" {
			return false
		}
	}
	return true
}

// hostLines are the words of each line of the node's file.
func hostLines(s scene) (all [][]string) {
	for line := range strings.SplitSeq(*s.World.Node.ResolvConf, "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

// loopback are the servers of a node that looks nothing up.
func loopback(s scene) (servers []string) {
	for _, ip := range s.World.Node.IPs {
		server := "127.0.0.1"
		if strings.Contains(ip, ":") {
			server = "::1"
		}
		servers = append(servers, server)
	}
	return servers
}

// limitWarnings are the events about a resolv.conf that begins with servers and
// searches, to which the pod's are added.
func limitWarnings(c *corev1.PodDNSConfig, servers, searches []string) (all []string) {
	if c == nil {
		return nil
	}
	servers, searches = distinct(append(servers, c.Nameservers...)), distinct(append(searches, c.Searches...))
	if len(servers) > 3 {
		all = append(all, "Warning: Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(servers[:3], " "))
	}
	short := slices.DeleteFunc(slices.Clone(searches), func(s string) bool { return len(s) > 253 })
	if len(short) < len(searches) {
		all = append(all, "Warning: Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(short, " "))
	}
	return all
}

// ownServers are the servers that the pod names.
func ownServers(p *corev1.Pod) []string {
	if p.Spec.DNSConfig == nil {
		return nil
	}
	return p.Spec.DNSConfig.Nameservers
}

func cut(all []string, most int) []string { return all[:min(len(all), most)] }

func distinct(all []string) (out []string) {
	for _, s := range all {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// list is a list as a fact has it, and elements the reverse.
func list(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return text(all)
}

func elements(text string) (all []string) {
	for s := range strings.SplitSeq(strings.Trim(text, "[]"), ",") {
		if s = strings.Trim(s, `"`); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// options are those of the node's file and the pod: with merge the last of each
// name, else those of the last line, of which the pod's replace the first of theirs.
func options(s scene, merge bool) string {
	var all []string
	put := func(option string) {
		name, _, _ := strings.Cut(option, ":")
		i := slices.IndexFunc(all, func(o string) bool { return strings.HasPrefix(o+":", name+":") })
		if i < 0 {
			all = append(all, option)
			return
		}
		all[i] = option
	}
	for _, line := range hostLines(s) {
		switch {
		case line[0] != "options":
		case merge:
			for _, o := range line[1:] {
				put(o)
			}
		default:
			all = slices.Clone(line[1:])
		}
	}
	if c := pod(s).Spec.DNSConfig; c != nil {
		for _, o := range c.Options {
			option := o.Name
			if o.Value != nil && *o.Value != "" {
				option += ":" + *o.Value
			}
			put(option)
		}
	}
	slices.Sort(all)
	return list(all)
}

// name is the first part of the pod's full name.
func (w *world) name(p *corev1.Pod) string {
	name := p.Name
	if p.Spec.Hostname != "" {
		name = p.Spec.Hostname
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-.")
}

// withoutDot returns an event about a full name that is too long as it would be
// without a dot at the end of the name.
func withoutDot(s scene, event string) string {
	dotted := "." + pod(s).Spec.Subdomain + "." + pod(s).Namespace + ".svc."
	if s.World.Node.ClusterDomain != "" {
		return event
	}
	n := len(s.World.name(pod(s)) + dotted)
	return strings.NewReplacer(dotted, strings.TrimSuffix(dotted, "."), strconv.Itoa(n), strconv.Itoa(n-1)).Replace(event)
}
