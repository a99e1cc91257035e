package settings

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/eviction"
)

// register defines the flags of the command run. If a flag sets a field of a KubeletConfiguration,
// its default is the current value in o. The result maps the name of a flag to the top-level field
// that the flag sets; flags that set no top-level field are not in the result.
func (o *Settings) register(flags *flag.FlagSet) map[string]string {
	fields := map[string]string{}
	named := func(name, field string) string {
		fields[name] = field
		return name
	}
	flags.StringVar(&o.ConfigFile, "config", "", "file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1); flags override its fields")
	o.registerConnections(flags, named)
	o.registerAccess(flags, named)
	o.registerPods(flags, named)
	o.registerHousekeeping(flags, named)
	return fields
}

func (o *Settings) registerConnections(flags *flag.FlagSet, named func(name, field string) string) {
	flags.StringVar(&o.ContainerRuntimeEndpoint, named("cri-endpoint", "containerRuntimeEndpoint"), o.ContainerRuntimeEndpoint, "CRI runtime to use: embedded (simulated in memory, runs no real containers), auto (the first well-known socket on which a runtime answers), or a unix:// address")
	flags.StringVar(&o.StaticPodPath, named("manifests", "staticPodPath"), o.StaticPodPath, "folder of pod manifests, in YAML or JSON (default: a set of sample pods)")
	flags.StringVar(&o.StaticPodURL, named("manifest-url", "staticPodURL"), o.StaticPodURL, "http or https URL of additional pod manifests: a Pod or a PodList")
	flags.Var(&address{o}, named("listen", "address"), "address and port of the HTTP server; an address other than loopback requires a certificate (--tls-cert-file, --tls-private-key-file), and a token file or a client CA (--token-file, --client-ca-file)")
	flags.BoolVar(&o.EnableProfilingHandler, named("enable-pprof", "enableProfilingHandler"), o.EnableProfilingHandler, "serve profiles at /debug/pprof/")
	flags.StringVar(&o.NodeName, "node-name", "", "name of this node; it is appended to the names of static pods (default: the host name)")
	flags.StringVar(&o.AgentName, "agent-name", "minimal-agent", "value of the label io.kubeparts.agent on the sandboxes and containers of this agent; the agent ignores sandboxes and containers without this label, unless --take-over is set")
	flags.StringVar(&o.RootDir, "root-dir", "", "folder for the agent's state and the container logs (default: /var/lib/minimal-agent, or a temporary folder with the embedded runtime)")
}

// registerAccess defines the flags of TLS, of users and of the additional listeners.
func (o *Settings) registerAccess(flags *flag.FlagSet, named func(name, field string) string) {
	flags.StringVar(&o.TLSCertFile, named("tls-cert-file", "tlsCertFile"), o.TLSCertFile, "file with the TLS certificate of the HTTP server, in PEM; reloaded when it changes")
	flags.StringVar(&o.TLSPrivateKeyFile, named("tls-private-key-file", "tlsPrivateKeyFile"), o.TLSPrivateKeyFile, "file with the private key of the certificate in --tls-cert-file, in PEM; reloaded when it changes")
	flags.StringVar(&o.TLSMinVersion, named("tls-min-version", "tlsMinVersion"), o.TLSMinVersion, "minimum version of TLS: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13 (default: VersionTLS12)")
	flags.Func(named("tls-cipher-suites", "tlsCipherSuites"), "comma-separated cipher suites for TLS 1.2 and earlier, by their names in Go's package crypto/tls (default: those of Go)", func(text string) error {
		o.TLSCipherSuites = strings.Split(text, ",")
		return nil
	})
	flags.StringVar(&o.TokenFile, "token-file", "", "file with the token that HTTP clients must send as Authorization: Bearer TOKEN; reloaded when it changes. While the file is missing or empty, every token is refused. With --token-file or --client-ca-file, requests without credentials get only /livez and the web page at /, which then shows no data. With --anonymous-auth, they also get the paths that --read-only-port serves")
	flags.StringVar(&o.Authentication.X509.ClientCAFile, "client-ca-file", o.Authentication.X509.ClientCAFile, "file with the CA certificates that sign client certificates, in PEM; reloaded when it changes; each client with a certificate that this CA has signed has full access, including exec in containers; requires --tls-cert-file")
	flags.BoolVar(&o.Authentication.Anonymous.Enabled, "anonymous-auth", o.Authentication.Anonymous.Enabled, "allow requests without credentials for the paths that --read-only-port serves; requires --token-file or --client-ca-file")
	flags.StringVar(&o.HealthzBindAddress, named("healthz-bind-address", "healthzBindAddress"), o.HealthzBindAddress, "IP address for --healthz-port")
	flags.Var((*number)(&o.HealthzPort), named("healthz-port", "healthzPort"), "port that only serves /healthz, /livez and /readyz, without TLS and without credentials, such as 10248; 0: no such port")
	flags.Var((*number)(&o.ReadOnlyPort), named("read-only-port", "readOnlyPort"), "port at the address of --listen that serves health, pods, statistics and metrics to everybody, without TLS and without credentials; 0: no such port")
}

func (o *Settings) registerPods(flags *flag.FlagSet, named func(name, field string) string) {
	flags.BoolVar(&o.StopPods, "stop-pods", false, "stop and remove all pods when the agent exits, each within its own grace period; if neither this flag nor --shutdown-grace-period is set, the pods keep running, and the agent manages them again when it is started again")
	flags.DurationVar(&o.ShutdownGracePeriod.Duration, named("shutdown-grace-period", "shutdownGracePeriod"), o.ShutdownGracePeriod.Duration, "stop all pods within this time when the agent exits, as a kubelet does when its node shuts down; the pods start again when the agent is started again; 0 leaves the pods running")
	flags.DurationVar(&o.ShutdownGracePeriodCriticalPods.Duration, named("shutdown-grace-period-critical-pods", "shutdownGracePeriodCriticalPods"), o.ShutdownGracePeriodCriticalPods.Duration, "part of --shutdown-grace-period that is reserved for critical pods, which are stopped last")
	flags.BoolVar(&o.TakeOver, "take-over", false, "treat every pod in the runtime that has the kubelet's labels as a pod of this agent, and remove the pods that no manifest defines")
	textVar(flags, func() string { return strings.Join(o.ClusterDNS, ",") }, named("cluster-dns", "clusterDNS"), "comma-separated IP addresses of the cluster's DNS servers, for pods with dnsPolicy ClusterFirst (default: all pods use the node's resolv.conf)", func(text string) error {
		o.ClusterDNS = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	})
	flags.StringVar(&o.ClusterDomain, named("cluster-domain", "clusterDomain"), o.ClusterDomain, "DNS domain of the cluster; it is a search domain of pods with dnsPolicy ClusterFirst")
	textVar(flags, func() string { return o.CgroupRoot }, named("cgroup-parent", "cgroupRoot"), "parent of the cgroup kubepods, below which each pod gets its own cgroup; / is the root cgroup; the runtime must use the cgroupfs driver (default: pods have no cgroups of their own)", func(text string) error {
		o.CgroupRoot, o.CgroupsPerQOS = text, text != ""
		return nil
	})
	reserved := func(into *map[string]string, name, usage string) {
		textVar(flags, func() string { return pairsText(*into, "=") }, name, usage, func(text string) (err error) {
			*into, err = eviction.ParseSettingFlag(text)
			return err
		})
	}
	reserved(&o.KubeReserved, named("kube-reserved", "kubeReserved"), "resources reserved for the agent and the runtime, such as cpu=200m,memory=500Mi; pods cannot request them")
	reserved(&o.SystemReserved, named("system-reserved", "systemReserved"), "resources reserved for the operating system, such as cpu=200m,memory=500Mi; pods cannot request them")
	flags.Var((*number)(&o.MaxPods), named("max-pods", "maxPods"), "maximum number of pods on this node")
}

func (o *Settings) registerHousekeeping(flags *flag.FlagSet, named func(name, field string) string) {
	pairs := func(into *map[string]string, separator string, parse func(string) (map[string]string, error), name, usage string) {
		textVar(flags, func() string { return pairsText(*into, separator) }, name, usage, func(text string) (err error) {
			*into, err = parse(text)
			return err
		})
	}
	pairs(&o.EvictionHard, "<", eviction.ParseThresholdFlag, named("eviction-hard", "evictionHard"), "evict pods at once when less than this is available, such as memory.available<100Mi,nodefs.available<10%; an empty value disables hard eviction; the default has the kubelet's thresholds")
	pairs(&o.EvictionSoft, "<", eviction.ParseThresholdFlag, named("eviction-soft", "evictionSoft"), "evict pods when less than this was available for the time in --eviction-soft-grace-period, such as memory.available<300Mi (default: no soft eviction)")
	pairs(&o.EvictionSoftGracePeriod, "=", eviction.ParseSettingFlag, named("eviction-soft-grace-period", "evictionSoftGracePeriod"), "how long a threshold of --eviction-soft must be crossed before pods are evicted, such as memory.available=1m30s; required for each signal of --eviction-soft")
	pairs(&o.EvictionMinimumReclaim, "=", eviction.ParseSettingFlag, named("eviction-minimum-reclaim", "evictionMinimumReclaim"), "once a threshold is crossed, evict pods until the available amount exceeds the threshold by this much, such as imagefs.available=2Gi")
	flags.DurationVar(&o.EvictionPressureTransitionPeriod.Duration, named("eviction-pressure-transition-period", "evictionPressureTransitionPeriod"), o.EvictionPressureTransitionPeriod.Duration, "how long a pressure condition of the node stays true after its threshold is no longer crossed")
	flags.Var((*number)(&o.EvictionMaxPodGracePeriod), named("eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"), "maximum grace period, in seconds, of pods that are evicted for --eviction-soft; -1: use the pod's own grace period")
	flags.Var((*number)(&o.ImageGCHighThresholdPercent), named("image-gc-high-threshold", "imageGCHighThresholdPercent"), "delete unused images when the image file system is at least this full, in percent")
	flags.Var((*number)(&o.ImageGCLowThresholdPercent), named("image-gc-low-threshold", "imageGCLowThresholdPercent"), "stop deleting unused images when the image file system is at most this full, in percent; see --image-gc-high-threshold")
	flags.DurationVar(&o.ImageMinimumGCAge.Duration, named("minimum-image-ttl-duration", "imageMinimumGCAge"), o.ImageMinimumGCAge.Duration, "minimum age of an unused image before it may be deleted")
	flags.IntVar(&o.DeadPerContainer, "maximum-dead-containers-per-container", 1, "how many exited instances of each container are kept; -1: all of them")
	flags.IntVar(&o.DeadAll, "maximum-dead-containers", -1, "how many exited containers are kept on the whole node; -1: no limit")
	flags.StringVar(&o.ContainerLogMaxSize, named("container-log-max-size", "containerLogMaxSize"), o.ContainerLogMaxSize, "size at which a container's log is rotated, such as 10Mi; a negative size disables rotation")
	flags.Var((*number)(&o.ContainerLogMaxFiles), named("container-log-max-files", "containerLogMaxFiles"), "maximum number of log files of each container, including rotated files")
}

// textVar defines a flag with two functions: set sets the value from the text of the flag, and show
// returns the text for the current value.
func textVar(flags *flag.FlagSet, show func() string, name, usage string, set func(string) error) {
	flags.Var(&textValue{show, set}, name, usage)
}

// textValue is the flag value of textVar.
type textValue struct {
	show func() string
	set  func(string) error
}

func (t *textValue) String() string {
	if t.show == nil {
		return "" // package flag calls String on a zero value
	}
	return t.show()
}

// Set implements [flag.Value].
func (t *textValue) Set(text string) error { return t.set(text) }

// pairsText returns the text of a flag with pairs, sorted by their names.
func pairsText(all map[string]string, separator string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, name+separator+all[name])
	}
	return strings.Join(pairs, ",")
}

// number is the flag value of a 32-bit setting.
type number int32

func (n *number) String() string { return strconv.Itoa(int(*n)) }

// Set implements [flag.Value].
func (n *number) Set(text string) error {
	v, err := strconv.ParseInt(text, 0, 32)
	if err != nil {
		return fmt.Errorf("must be a whole number between %d and %d", math.MinInt32, math.MaxInt32)
	}
	*n = number(v)
	return nil
}

// address is the flag value of --listen. It sets two settings: address and port.
type address struct{ o *Settings }

func (a *address) String() string {
	if a.o == nil {
		return "" // package flag calls String on a zero value
	}
	return net.JoinHostPort(a.o.Address, strconv.Itoa(int(a.o.Port)))
}

// Set implements [flag.Value].
func (a *address) Set(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return err
	}
	switch {
	case host == "":
		host = "::"
	case strings.EqualFold(host, "localhost"):
		host = "127.0.0.1"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("port %q: must be a number from 0 to 65535", port)
	}
	a.o.Address, a.o.Port = host, int32(n)
	return nil
}
