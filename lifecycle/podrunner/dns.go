package podrunner

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DNS is the node's own DNS configuration. The zero value means that the node's
// resolv.conf is unknown and that the runtime copies this file into pods.
type DNS struct {
	// Host is the content of the node's resolv.conf. If Host is nil and
	// NoLookups is false, the content is unknown, and the runtime copies the
	// file.
	Host *ResolvConf
	// HostErr is why the node's resolv.conf can't be read. If it is not nil, no
	// sandbox is created.
	HostErr error
	// NoLookups disables DNS for pods that would use the node's configuration,
	// as an empty resolvConf does in the kubelet. If NoLookups is true, Host
	// must be nil.
	NoLookups bool
}

// ResolvConf is the content of a resolv.conf file.
type ResolvConf struct {
	Servers, Searches, Options []string
}

// The limits of a resolv.conf, the same as in the kubelet.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
	maxResolvConf  = 10 << 20
)

// DNSConfigForming is the reason of the event that reports omitted entries of a
// pod's resolv.conf. MissingClusterDNS is the reason of the event about missing
// cluster DNS servers.
const (
	DNSConfigForming  = "DNSConfigForming"
	MissingClusterDNS = "MissingClusterDNS"
)

// Warning is an event of type Warning about a pod, or about its node if OfNode
// is true.
type Warning struct {
	Reason, Message string
	OfNode          bool
}

// unreadable is the prefix of errors about a resolv.conf, in the kubelet's
// words.
const unreadable = "Encountered error while parsing resolv conf file. Error"

// ParseResolvConf parses a resolv.conf (resolv.conf(5)). It returns the servers
// of all nameserver lines, the domains of the last search line, and the last
// option of each name. It removes a dot at the end of a search domain, and
// ignores a domain that is only a dot. It ignores comments, and lines with any
// other keyword. If a nameserver line has no value, it returns an error
// together with the parsed lines. If the text has more than 10 MiB, it returns
// only an error.
func ParseResolvConf(text string) (ResolvConf, error) {
	r, err := parseResolvConf(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", unreadable, err)
	}
	return r, err
}

func parseResolvConf(text string) (r ResolvConf, err error) {
	if len(text) > maxResolvConf {
		return r, fmt.Errorf("file has %d bytes, more than the limit of %d", len(text), maxResolvConf)
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if len(words) == 1 {
				err = errors.New("nameserver list is empty ") // the kubelet's text, with the space at its end
				continue
			}
			r.Servers = append(r.Servers, words[1])
		case "search":
			r.Searches = nil
			for _, s := range words[1:] {
				if s != "." {
					r.Searches = append(r.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range words[1:] {
				r.Options = setOption(r.Options, o)
			}
		}
	}
	return r, err
}

// DNSConfig returns the DNS configuration of the pod's sandbox, and the
// warnings to record. It computes the configuration from the pod's dnsPolicy
// and dnsConfig, and reduces it to the kubelet's limits. A nil configuration
// means that the runtime copies the node's configuration, or that this
// configuration can't be read. DNSConfig is pure.
func DNSConfig(pod *corev1.Pod, node Node) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	var config *runtimeapi.DNSConfig
	switch policy := dnsPolicy(pod); {
	case policy == corev1.DNSNone:
		config = &runtimeapi.DNSConfig{}
	case policy == corev1.DNSClusterFirst && len(node.ClusterDNS) > 0:
		config = clusterDNS(pod, node)
	default:
		if policy == corev1.DNSClusterFirst {
			missing := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
				corev1.DNSClusterFirst, corev1.DNSDefault)
			warnings = append(warnings, Warning{Reason: MissingClusterDNS, Message: missing, OfNode: true},
				Warning{Reason: MissingClusterDNS, Message: fmt.Sprintf("pod: %q. %s", podID(pod), missing)})
		}
		config = hostDNS(node)
	}
	extra := pod.Spec.DNSConfig
	if config == nil || node.DNS.HostErr != nil {
		return nil, warnings // with a HostErr or a dnsConfig, CheckSandbox returns an error
	}
	if extra != nil {
		config.Servers = distinct(append(config.Servers, extra.Nameservers...))
		config.Searches = distinct(append(config.Searches, extra.Searches...))
		config.Options = mergeOptions(config.Options, extra.Options)
	}
	return config, append(warnings, limitDNS(config)...)
}

// checkDNS returns an error if the node's resolv.conf can't be read. It also
// returns an error if the pod has a dnsConfig that would have to be added to an
// unknown resolv.conf.
func checkDNS(pod *corev1.Pod, node Node) error {
	if err := node.DNS.HostErr; err != nil {
		return err
	}
	if pod.Spec.DNSConfig == nil {
		return nil
	}
	if config, _ := DNSConfig(pod, node); config == nil {
		return fmt.Errorf("dnsConfig can't be added to the node's resolv.conf, which is unknown (dnsPolicy %s)", pod.Spec.DNSPolicy)
	}
	return nil
}

// dnsPolicy returns the policy in effect: ClusterFirst, Default or None. An
// unknown or missing policy means ClusterFirst. In the host network,
// ClusterFirst means Default. For ClusterFirstWithHostNet, dnsPolicy always
// returns ClusterFirst.
func dnsPolicy(pod *corev1.Pod) corev1.DNSPolicy {
	switch p := pod.Spec.DNSPolicy; p {
	case corev1.DNSNone, corev1.DNSDefault:
		return p
	case corev1.DNSClusterFirstWithHostNet:
		return corev1.DNSClusterFirst
	case corev1.DNSClusterFirst:
	}
	if pod.Spec.HostNetwork {
		return corev1.DNSDefault
	}
	return corev1.DNSClusterFirst
}

func clusterDNS(pod *corev1.Pod, node Node) *runtimeapi.DNSConfig {
	config := &runtimeapi.DNSConfig{Servers: slices.Clone(node.ClusterDNS), Options: []string{"ndots:5"}}
	if host := node.DNS.Host; host != nil {
		config.Searches = slices.Clone(host.Searches)
	}
	if d := node.ClusterDomain; d != "" {
		config.Searches = distinct(append([]string{pod.Namespace + ".svc." + d, "svc." + d, d}, config.Searches...))
	}
	return config
}

// hostDNS returns the configuration for the policy Default. It returns nil if
// the node's configuration is unknown.
func hostDNS(node Node) *runtimeapi.DNSConfig {
	host := node.DNS.Host
	switch {
	case node.DNS.NoLookups:
		return noLookups(node.IPs)
	case host == nil:
		return nil
	}
	return &runtimeapi.DNSConfig{
		Servers: slices.Clone(host.Servers), Searches: slices.Clone(host.Searches), Options: slices.Clone(host.Options),
	}
}

// noLookups returns a configuration that resolves no name. The configuration is
// not empty, because a runtime would replace an empty configuration with the
// node's configuration.
func noLookups(nodeIPs []string) *runtimeapi.DNSConfig {
	config := &runtimeapi.DNSConfig{Searches: []string{"."}}
	for _, ip := range nodeIPs {
		server := "127.0.0.1"
		if a, err := netip.ParseAddr(ip); err == nil && a.Is6() && !a.Is4In6() {
			server = "::1"
		}
		config.Servers = append(config.Servers, server)
	}
	if len(config.Servers) == 0 {
		config.Servers = []string{"127.0.0.1"}
	}
	return config
}

// mergeOptions appends the options of the pod. An option of the pod replaces an
// existing option of the same name, at the same position.
func mergeOptions(options []string, more []corev1.PodDNSConfigOption) []string {
	for _, o := range more {
		option := o.Name
		if o.Value != nil && *o.Value != "" {
			option += ":" + *o.Value
		}
		options = setOption(options, option)
	}
	return options
}

// setOption replaces the existing option of the same name, or appends the
// option.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	i := slices.IndexFunc(options, func(o string) bool {
		other, _, _ := strings.Cut(o, ":")
		return other == name
	})
	if i < 0 {
		return append(options, option)
	}
	options[i] = option
	return options
}

// limitDNS reduces a configuration to the limits of resolvers, and returns a
// warning about each limit that was exceeded.
func limitDNS(config *runtimeapi.DNSConfig) (warnings []Warning) {
	if len(config.Servers) > maxNameservers {
		config.Servers = config.Servers[:maxNameservers]
		warnings = append(warnings, Warning{
			Reason:  DNSConfigForming,
			Message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " + strings.Join(config.Servers, " "),
		})
	}
	before := len(config.Searches)
	config.Searches = fitting(config.Searches)
	if len(config.Searches) < before {
		warnings = append(warnings, Warning{
			Reason:  DNSConfigForming,
			Message: "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(config.Searches, " "),
		})
	}
	return warnings
}

// fitting returns the search domains that are within the limits. It uses only
// the first 32 domains, skips domains that are too long, and stops before the
// line would have more than 2048 characters, including spaces.
func fitting(searches []string) []string {
	var out []string
	line := -1
	for _, s := range searches[:min(len(searches), maxSearches)] {
		if len(s) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		if line += 1 + len(s); line > maxSearchChars {
			break
		}
		out = append(out, s)
	}
	return out
}

func distinct(all []string) []string {
	var out []string
	for _, s := range all {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
