package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// Endpoints that are no address.
const (
	// embeddedEndpoint is an in-process runtime in memory.
	embeddedEndpoint = "embedded"
	// autoEndpoint is the first live one of the well-known sockets.
	autoEndpoint = "auto"
)

// options is what the command line says.
type options struct {
	endpoint  string
	manifests string
	url       string // of more manifests
	listen    string
	nodeName  string
	agentName string
	rootDir   string
	stopPods  bool
	takeOver  bool

	clusterDNS                   string // addresses, comma-separated
	clusterDomain                string
	cgroupParent                 string // empty: pods have no cgroups of their own
	maxPods                      int
	kubeReserved, systemReserved corev1.ResourceList
	limits                       limits

	shutdown podworker.ShutdownConfig

	access server.Access // who may ask over HTTP
	pprof  bool
}

// parseOptions reads the command line and names every problem with its values at
// once. What --help asks for goes to usage.
func parseOptions(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("minimal-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main says what is wrong, once
	flags.StringVar(&o.endpoint, "cri-endpoint", embeddedEndpoint, "the runtime: embedded (in memory, nothing real runs), auto (the first live well-known socket), or a unix:// address")
	flags.StringVar(&o.manifests, "manifests", "", "folder of pod manifests (default: a small sample set)")
	flags.StringVar(&o.url, "manifest-url", "", "http or https URL of more manifests, a Pod or a PodList")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:10255", "address of the HTTP server")
	flags.StringVar(&o.access.CertFile, "tls-cert-file", "", "certificate to serve with, in PEM; it is read again when it changes")
	flags.StringVar(&o.access.KeyFile, "tls-private-key-file", "", "its key")
	flags.StringVar(&o.access.TokenFile, "token-file", "", "file of a token that requests must bring, as Authorization: Bearer TOKEN; it is read again when it changes")
	flags.BoolVar(&o.pprof, "enable-pprof", false, "serve profiles at /debug/pprof/")
	flags.StringVar(&o.nodeName, "node-name", "", "name of this node; static pods carry it (default: the host's name)")
	flags.StringVar(&o.agentName, "agent-name", "minimal-agent", "marks what this agent makes on the runtime; it touches nothing else")
	flags.StringVar(&o.rootDir, "root-dir", "", "folder of the agent's files and logs (default: /var/lib/minimal-agent, a temporary one with the embedded runtime)")
	flags.BoolVar(&o.stopPods, "stop-pods", false, "take the pods down when the agent stops, instead of leaving them running")
	flags.DurationVar(&o.shutdown.ShutdownGracePeriod, "shutdown-grace-period", 0, "end the pods when the agent stops, within this time, as a kubelet does when its node shuts down; the next agent starts them again (default: they run on)")
	flags.DurationVar(&o.shutdown.ShutdownGracePeriodCriticalPods, "shutdown-grace-period-critical-pods", 0, "the part of it that is kept for critical pods, which end last")
	flags.BoolVar(&o.takeOver, "take-over", false, "treat every pod on the runtime that carries a kubelet's labels as this agent's, and remove those that no manifest asks for")
	flags.StringVar(&o.clusterDNS, "cluster-dns", "", "addresses of a cluster's DNS, comma-separated, for pods of policy ClusterFirst (default: the node's resolv.conf for all)")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "", "the cluster's domain, which pods search")
	flags.StringVar(&o.cgroupParent, "cgroup-parent", "", "keep a cgroup for each pod, in the tree kubepods below this one; / is the root. The runtime must use the cgroupfs driver (default: no cgroups of pods)")
	flags.IntVar(&o.maxPods, "max-pods", 500, "how many pods may run here")
	flags.Func("kube-reserved", "what is kept from pods for the agent and the runtime, such as cpu=200m,memory=500Mi (default: nothing)", reservation(&o.kubeReserved))
	flags.Func("system-reserved", "what is kept from pods for the rest of the system", reservation(&o.systemReserved))
	o.limits.register(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(usage)
		fmt.Fprintln(usage, "minimal-agent runs the pods of a folder of manifests on a CRI runtime. Its flags:")
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return o, fmt.Errorf("%w (--help lists the flags)", err)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := o.complete(); err != nil {
		return o, err
	}
	return o, errors.Join(o.validate(), o.limits.complete())
}

// complete fills in what depends on the machine.
func (o *options) complete() error {
	if o.nodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("no --node-name, and the host's is not to be had: %w", err)
		}
		o.nodeName = strings.ToLower(name)
	}
	if o.rootDir == "" && o.endpoint != embeddedEndpoint {
		o.rootDir = "/var/lib/minimal-agent"
	}
	for _, dir := range []*string{&o.rootDir, &o.manifests} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("%s: %w", *dir, err)
		}
		*dir = abs
	}
	return nil
}

func (o *options) validate() error {
	var errs []error
	for _, problem := range validation.IsDNS1123Subdomain(o.nodeName) {
		errs = append(errs, fmt.Errorf("--node-name %q: %s", o.nodeName, problem))
	}
	for _, problem := range validation.IsValidLabelValue(o.agentName) {
		errs = append(errs, fmt.Errorf("--agent-name %q: %s", o.agentName, problem))
	}
	if o.agentName == "" {
		errs = append(errs, errors.New("--agent-name is empty"))
	}
	if o.maxPods < 1 {
		errs = append(errs, fmt.Errorf("--max-pods %d: want at least 1", o.maxPods))
	}
	if o.cgroupParent != "" && (!filepath.IsAbs(o.cgroupParent) || filepath.Clean(o.cgroupParent) != o.cgroupParent) {
		errs = append(errs, fmt.Errorf("--cgroup-parent %q: want an absolute path", o.cgroupParent))
	}
	for _, ip := range splitList(o.clusterDNS) {
		if net.ParseIP(ip) == nil {
			errs = append(errs, fmt.Errorf("--cluster-dns %q: %s is no address", o.clusterDNS, ip))
		}
	}
	if err := o.shutdown.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--shutdown-grace-period: %w", err))
	}
	if o.stopPods && o.shutdown.Total() > 0 {
		errs = append(errs, errors.New("--stop-pods and --shutdown-grace-period: want one of them"))
	}
	if err := o.access.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err))
	}
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen: %w", err))
	}
	if o.endpoint != embeddedEndpoint && o.endpoint != autoEndpoint && !strings.HasPrefix(o.endpoint, "unix:///") {
		errs = append(errs, fmt.Errorf("--cri-endpoint %q: want embedded, auto or unix:///PATH", o.endpoint))
	}
	return errors.Join(errs...)
}
