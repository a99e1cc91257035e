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

// DNS is a node's own DNS configuration. The zero value is a node whose resolv.conf is
// not known: pods get the runtime's copy of it.
type DNS struct {
	// Host is the node's own resolv.conf. Nil: it is not known, and the runtime
	// copies it by itself.
	Host *ResolvConf
	// HostErr is why the node's resolv.conf can't be read: no sandbox is made then.
	HostErr error
	// NoLookups says that pods which would have the node's configuration look
	// nothing up: the kubelet's resolvConf is empty. Host stays nil then.
	NoLookups bool
}

// ResolvConf is what a resolv.conf file says.
type ResolvConf struct {
	Servers, Searches, Options []string
}

// The limits of a resolv.conf, as the kubelet has them.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
	maxResolvConf  = 10 << 20
)

// DNSConfigForming is the reason of the event that something was left out of a
// pod's resolv.conf; MissingClusterDNS that there is no cluster to ask.
const (
	DNSConfigForming  = "DNSConfigForming"
	MissingClusterDNS = "MissingClusterDNS"
)

// Warning is an event of type Warning to record on a pod, or on its node if OfNode is
// set.
type Warning struct {
	Reason, Message string
	OfNode          bool
}

// unreadable begins the error about a resolv.conf in the kubelet's words.
const unreadable = "Encountered error while parsing resolv conf file. Error"

// ParseResolvConf reads a resolv.conf (resolv.conf(5)): nameservers add up, of
// searches the last line wins and of options the last one of each name, a dot at the
// end of a search domain is dropped, and the domain that is a dot alone with it. Other
// lines and comments are passed over. An error is a nameserver line without one, or more
// than 10 MiB; what was read comes with it.
func ParseResolvConf(text string) (ResolvConf, error) {
	r, err := parseResolvConf(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", unreadable, err)
	}
	return r, err
}

func parseResolvConf(text string) (r ResolvConf, err error) {
	if len(text) > maxResolvConf {
		return r, fmt.Errorf("it has %d bytes, at most %d are read", len(text), maxResolvConf)
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if len(words) == 1 {
				err = errors.New("nameserver list is empty ") // the kubelet's, with the space
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

// DNSConfig returns the DNS configuration of the pod's sandbox, by its dnsPolicy
// and dnsConfig, within the kubelet's limits, and what to warn of. Nil is the
// node's, which the runtime copies by itself. It is pure.
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
		return nil, warnings // dnsConfig, too: CheckSandbox refuses it
	}
	if extra != nil {
		config.Servers = distinct(append(config.Servers, extra.Nameservers...))
		config.Searches = distinct(append(config.Searches, extra.Searches...))
		config.Options = mergeOptions(config.Options, extra.Options)
	}
	return config, append(warnings, limitDNS(config)...)
}

// checkDNS refuses what can't be added to a file that nobody has shown us, and
// everything while the node's can't be read.
func checkDNS(pod *corev1.Pod, node Node) error {
	if err := node.DNS.HostErr; err != nil {
		return err
	}
	if pod.Spec.DNSConfig == nil {
		return nil
	}
	if config, _ := DNSConfig(pod, node); config == nil {
		return fmt.Errorf("dnsConfig can't be added to the node's resolv.conf, which is not known (dnsPolicy %s)", pod.Spec.DNSPolicy)
	}
	return nil
}

// dnsPolicy is the policy in effect, one of ClusterFirst, Default and None. One
// that is not known, or none, is ClusterFirst.
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

// hostDNS is the node's configuration.
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

// noLookups is a configuration by which nothing is found: a runtime would take an empty
// one for none, and copy the node's.
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

// mergeOptions keeps the order of what is there; an option of the pod replaces
// one of its name.
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

// setOption puts an option in the place of the one of its name, or at the end.
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

// limitDNS cuts a configuration to what resolvers take and says so.
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

// fitting returns the search domains that fit: the first 32, without those that
// are too long for a domain, up to 2048 characters with the spaces.
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
