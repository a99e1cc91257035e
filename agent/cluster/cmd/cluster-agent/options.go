package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
)

// debugVerbosity is the value of --v from which debug messages are logged.
const debugVerbosity = 4

// options are the values of the flags and of the configuration file.
type options struct {
	kubeletconfig.Settings
	policies   kubeletconfig.Policies
	configFile string
	notes      []kubeletconfig.Problem // remarks about the configuration file

	kubeconfig, bootstrapKubeconfig string
	rootDir, certDir                string
	nodeName                        string
	nodeIPs                         []netip.Addr // empty: use the addresses of the network interfaces
	nodeLabels                      map[string]string
	verbosity                       int
	checkpoint                      bool // store the pods, for a start without the API server
}

// parse reads the flags and the file of --config. Flags override the file. It stops at the first
// flag that can't be parsed. If all flags can be parsed, the error reports every problem with the
// file, or every problem with the resulting options.
func parse(args []string, usage io.Writer) (options, error) {
	o := options{Settings: kubeletconfig.Kubelet()}
	if err := o.parseFlags(args, usage); err != nil {
		return o, err
	}
	if o.configFile != "" {
		file, err := kubeletconfig.LoadKubelet(o.configFile)
		if err != nil {
			return o, err
		}
		// Parse the flags again, so that they override the values of the file.
		o = options{Settings: file.Settings, notes: file.Notes}
		if err := o.parseFlags(args, usage); err != nil {
			return o, err
		}
	}
	if o.ShutdownGracePeriod.Duration > 0 || len(o.ShutdownGracePeriodByPodPriority) > 0 {
		o.notes = append(o.notes, kubeletconfig.Problem{Field: "shutdownGracePeriod", Text: "ignored: the agent does not notice the shutdown of the machine"})
	}
	return o, o.complete()
}

// parseFlags reads the flags into o. If a flag for a field of the configuration file is not set,
// the field in o does not change.
func (o *options) parseFlags(args []string, usage io.Writer) error {
	flags := flag.NewFlagSet("cluster-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error
	flags.StringVar(&o.configFile, "config", "", "file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1); flags override its fields")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the address of the API server and the credentials of the node; required")
	flags.StringVar(&o.bootstrapKubeconfig, "bootstrap-kubeconfig", "", "kubeconfig with bootstrap credentials. If the file of --kubeconfig does not exist, or its client certificate has expired, the agent requests a new certificate with these credentials and writes the file of --kubeconfig")
	flags.StringVar(&o.rootDir, "root-dir", "/var/lib/kubelet", "folder of the agent's files: volumes, state, checkpoints")
	flags.StringVar(&o.certDir, "cert-dir", "", "folder of certificates that the agent requests or creates (default: pki in the folder of --root-dir)")
	flags.StringVar(&o.nodeName, "hostname-override", "", "name of the node (default: the host name)")
	flags.Func("node-ip", "comma-separated IP addresses of the node, at most one IPv4 and one IPv6 address (default: for each family, the first global address of the network interfaces)", func(text string) (err error) {
		o.nodeIPs, err = parseIPs(text)
		return err
	})
	flags.Func("node-labels", "comma-separated labels NAME=VALUE of the node, for its registration", func(text string) (err error) {
		o.nodeLabels, err = cluster.ParseLabels(text)
		return err
	})
	flags.Func("register-with-taints", "comma-separated taints KEY=VALUE:EFFECT of the node, for its registration (registerWithTaints)", func(text string) (err error) {
		o.RegisterWithTaints, err = cluster.ParseTaints(text)
		return err
	})
	flags.StringVar(&o.ContainerRuntimeEndpoint, "container-runtime-endpoint", o.ContainerRuntimeEndpoint, "unix:// address of the CRI runtime (containerRuntimeEndpoint)")
	flags.StringVar(&o.StaticPodPath, "pod-manifest-path", o.StaticPodPath, "folder of the manifests of static pods (staticPodPath)")
	flags.BoolVar(&o.checkpoint, "pod-checkpoint", true, "store the specs of the node's pods in the folder of --root-dir. If the API server can't be reached when the agent starts, the agent manages the stored pods")
	flags.IntVar(&o.verbosity, "v", 0, "verbosity of the log; "+strconv.Itoa(debugVerbosity)+" or more includes debug messages")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(usage)
		fmt.Fprintln(usage, "cluster-agent runs the pods of a node of a Kubernetes cluster. Flags:")
		flags.PrintDefaults()
	case err != nil:
		return fmt.Errorf("%w (--help lists the flags)", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return err
}

// complete sets the defaults that depend on the host or on other options, and reports every invalid
// option.
func (o *options) complete() error {
	var errs []error
	if o.kubeconfig == "" {
		errs = append(errs, errors.New("--kubeconfig is required"))
	}
	if o.nodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--hostname-override is not set, and the host name could not be read: %w", err)
		}
		o.nodeName = name
	}
	o.nodeName = strings.ToLower(strings.TrimSpace(o.nodeName)) // as in the kubelet
	for _, problem := range validation.IsDNS1123Subdomain(o.nodeName) {
		errs = append(errs, fmt.Errorf("--hostname-override %q: %s", o.nodeName, problem))
	}
	for _, path := range []*string{&o.kubeconfig, &o.bootstrapKubeconfig, &o.rootDir, &o.certDir, &o.StaticPodPath} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		errs, *path = append(errs, err), abs
	}
	if o.certDir == "" {
		o.certDir = filepath.Join(o.rootDir, "pki")
	}
	if e := o.ContainerRuntimeEndpoint; !strings.HasPrefix(e, "unix://") {
		errs = append(errs, fmt.Errorf("--container-runtime-endpoint %q: want unix:///PATH", e))
	}
	var err error
	o.policies, err = o.Policies()
	return errors.Join(append(errs, err)...)
}

// address returns the address of a port of the agent.
func address(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

func parseIPs(text string) (ips []netip.Addr, err error) {
	for part := range strings.SplitSeq(text, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, err
		case ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "":
			return nil, fmt.Errorf("%s is not the address of a machine", ip)
		case len(ips) == 1 && ips[0].Is4() == ip.Is4() || len(ips) > 1:
			return nil, errors.New("want at most one address of each family")
		}
		ips = append(ips, ip.Unmap())
	}
	return ips, nil
}
