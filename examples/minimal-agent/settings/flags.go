package settings

import (
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/eviction"
)

// register adds the flags of run. Their defaults are what o holds already. It
// returns which field of the configuration each flag sets.
func (o *Settings) register(flags *flag.FlagSet) map[string]string {
	fields := map[string]string{}
	named := func(name, field string) string {
		fields[name] = field
		return name
	}
	flags.StringVar(&o.ConfigFile, "config", "", "file with a KubeletConfiguration; flags win over it")
	o.registerPlaces(flags, named)
	o.registerPods(flags, named)
	o.registerUpkeep(flags, named)
	return fields
}

func (o *Settings) registerPlaces(flags *flag.FlagSet, named func(name, field string) string) {
	flags.StringVar(&o.ContainerRuntimeEndpoint, named("cri-endpoint", "containerRuntimeEndpoint"), o.ContainerRuntimeEndpoint, "the runtime: embedded (in memory, nothing real runs), auto (the first live well-known socket), or a unix:// address")
	flags.StringVar(&o.StaticPodPath, named("manifests", "staticPodPath"), o.StaticPodPath, "folder of pod manifests (default: a small sample set)")
	flags.StringVar(&o.StaticPodURL, named("manifest-url", "staticPodURL"), o.StaticPodURL, "http or https URL of more manifests, a Pod or a PodList")
	flags.Var(&address{o}, named("listen", "address"), "address of the HTTP server")
	flags.StringVar(&o.TLSCertFile, named("tls-cert-file", "tlsCertFile"), o.TLSCertFile, "certificate to serve with, in PEM; it is read again when it changes")
	flags.StringVar(&o.TLSPrivateKeyFile, named("tls-private-key-file", "tlsPrivateKeyFile"), o.TLSPrivateKeyFile, "its key")
	flags.StringVar(&o.TokenFile, "token-file", "", "file of a token that requests must bring, as Authorization: Bearer TOKEN; it is read again when it changes, and while it is missing or has no token every request is refused")
	flags.BoolVar(&o.EnableProfilingHandler, named("enable-pprof", "enableProfilingHandler"), o.EnableProfilingHandler, "serve profiles at /debug/pprof/")
	flags.StringVar(&o.NodeName, "node-name", "", "name of this node; static pods carry it (default: the host's name)")
	flags.StringVar(&o.AgentName, "agent-name", "minimal-agent", "marks what this agent makes on the runtime; it touches nothing else")
	flags.StringVar(&o.RootDir, "root-dir", "", "folder of the agent's files and logs (default: /var/lib/minimal-agent, a temporary one with the embedded runtime)")
}

func (o *Settings) registerPods(flags *flag.FlagSet, named func(name, field string) string) {
	flags.BoolVar(&o.StopPods, "stop-pods", false, "take the pods down when the agent stops, instead of leaving them running")
	flags.DurationVar(&o.ShutdownGracePeriod.Duration, named("shutdown-grace-period", "shutdownGracePeriod"), o.ShutdownGracePeriod.Duration, "end the pods when the agent stops, within this time, as a kubelet does when its node shuts down; the next agent starts them again; 0: they run on")
	flags.DurationVar(&o.ShutdownGracePeriodCriticalPods.Duration, named("shutdown-grace-period-critical-pods", "shutdownGracePeriodCriticalPods"), o.ShutdownGracePeriodCriticalPods.Duration, "the part of it that is kept for critical pods, which end last")
	flags.BoolVar(&o.TakeOver, "take-over", false, "treat every pod on the runtime that carries a kubelet's labels as this agent's, and remove those that no manifest asks for")
	flags.Func(named("cluster-dns", "clusterDNS"), "addresses of a cluster's DNS, comma-separated, for pods of policy ClusterFirst (default: the node's resolv.conf for all)", func(text string) error {
		o.ClusterDNS = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	})
	flags.StringVar(&o.ClusterDomain, named("cluster-domain", "clusterDomain"), o.ClusterDomain, "the cluster's domain, which pods search")
	flags.Func(named("cgroup-parent", "cgroupRoot"), "keep a cgroup for each pod, in the tree kubepods below this one; / is the root. The runtime must use the cgroupfs driver (default: no cgroups of pods)", func(text string) error {
		o.CgroupRoot, o.CgroupsPerQOS = text, text != ""
		return nil
	})
	for name, into := range map[string]*map[string]string{named("kube-reserved", "kubeReserved"): &o.KubeReserved, named("system-reserved", "systemReserved"): &o.SystemReserved} {
		flags.Func(name, "what is kept from pods for others, such as cpu=200m,memory=500Mi", func(text string) (err error) {
			*into, err = eviction.ParseSettingFlag(text)
			return err
		})
	}
	flags.Var((*number)(&o.MaxPods), named("max-pods", "maxPods"), "how many pods may run here")
}

func (o *Settings) registerUpkeep(flags *flag.FlagSet, named func(name, field string) string) {
	pairs := func(into *map[string]string, parse func(string) (map[string]string, error), name, usage string) {
		flags.Func(name, usage, func(text string) (err error) {
			*into, err = parse(text)
			return err
		})
	}
	pairs(&o.EvictionHard, eviction.ParseThresholdFlag, named("eviction-hard", "evictionHard"), "evict pods when less than this is available, such as memory.available<100Mi,nodefs.available<10%; empty: never (default: the kubelet's)")
	pairs(&o.EvictionSoft, eviction.ParseThresholdFlag, named("eviction-soft", "evictionSoft"), "the same, when it was so for a while: see --eviction-soft-grace-period")
	pairs(&o.EvictionSoftGracePeriod, eviction.ParseSettingFlag, named("eviction-soft-grace-period", "evictionSoftGracePeriod"), "for how long, such as memory.available=1m30s")
	pairs(&o.EvictionMinimumReclaim, eviction.ParseSettingFlag, named("eviction-minimum-reclaim", "evictionMinimumReclaim"), "how much more than the threshold is to be available then, such as imagefs.available=2Gi")
	flags.DurationVar(&o.EvictionPressureTransitionPeriod.Duration, named("eviction-pressure-transition-period", "evictionPressureTransitionPeriod"), o.EvictionPressureTransitionPeriod.Duration, "how long the node counts as short of something after it was")
	flags.Var((*number)(&o.EvictionMaxPodGracePeriod), named("eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"), "seconds that a pod has to end in an eviction for --eviction-soft; -1: its own")
	flags.Var((*number)(&o.ImageGCHighThresholdPercent), named("image-gc-high-threshold", "imageGCHighThresholdPercent"), "percent of the images' disk in use from which on unused images are removed")
	flags.Var((*number)(&o.ImageGCLowThresholdPercent), named("image-gc-low-threshold", "imageGCLowThresholdPercent"), "percent of it down to which they are")
	flags.DurationVar(&o.ImageMinimumGCAge.Duration, named("minimum-image-ttl-duration", "imageMinimumGCAge"), o.ImageMinimumGCAge.Duration, "how long an image stays at least")
	flags.IntVar(&o.DeadPerContainer, "maximum-dead-containers-per-container", 1, "how many ended instances of a container are kept; -1: all")
	flags.IntVar(&o.DeadAll, "maximum-dead-containers", -1, "how many ended containers are kept in all; -1: no limit")
	flags.StringVar(&o.ContainerLogMaxSize, named("container-log-max-size", "containerLogMaxSize"), o.ContainerLogMaxSize, "size from which on a container's log is rotated; negative: never")
	flags.Var((*number)(&o.ContainerLogMaxFiles), named("container-log-max-files", "containerLogMaxFiles"), "how many files there are of a container's log")
}

// number is a flag of a setting that the kubelet keeps in 32 bits.
type number int32

func (n *number) String() string { return strconv.Itoa(int(*n)) }

// Set implements [flag.Value].
func (n *number) Set(text string) error {
	v, err := strconv.ParseInt(text, 0, 32)
	if err != nil {
		return fmt.Errorf("want a whole number")
	}
	*n = number(v)
	return nil
}

// address is a flag of two settings.
type address struct{ o *Settings }

func (a *address) String() string {
	if a.o == nil {
		return "" // what package flag compares defaults with
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
		return fmt.Errorf("port %q: want a number up to 65535", port)
	}
	a.o.Address, a.o.Port = host, int32(n)
	return nil
}
