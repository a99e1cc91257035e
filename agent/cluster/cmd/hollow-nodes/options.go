package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
)

const (
	// The nodes log the changes of pods if --v is at least infoVerbosity, and debug messages if --v
	// is at least debugVerbosity.
	infoVerbosity  = 2
	debugVerbosity = 4
	// maxNodes and maxPods are limited by the addresses of pods. See podNetwork.
	maxNodes = 1 << (podNetworkBits - 8)
	maxPods  = 1000
)

// options are the values of the flags.
type options struct {
	kubeconfig  string
	nodes       int
	prefix      string
	cpu, memory resource.Quantity
	labels      map[string]string
	taints      []corev1.Taint
	verbosity   int

	settings kubeletconfig.Settings // of a kubelet, with the values of the flags
	policies kubeletconfig.Policies // of settings
}

// nodeName returns the name of a node.
func (o *options) nodeName(index int) string { return o.prefix + strconv.Itoa(index) }

// logLevel returns the level of the nodes' logs. The default is Warn, because many nodes would log
// too much at the level Info.
func (o *options) logLevel() slog.Level {
	switch {
	case o.verbosity >= debugVerbosity:
		return slog.LevelDebug
	case o.verbosity >= infoVerbosity:
		return slog.LevelInfo
	default:
		return slog.LevelWarn
	}
}

// parse reads the flags. If all flags can be read, the error reports every problem with the values.
func parse(args []string, usage io.Writer) (options, error) {
	o := options{
		nodes: 1, cpu: resource.MustParse("4"), memory: resource.MustParse("8Gi"), settings: kubeletconfig.Kubelet(),
	}
	problems, err := o.parseFlags(args, usage)
	if err != nil {
		return o, err
	}
	return o, errors.Join(append(problems, o.complete()...)...)
}

// parseFlags reads the flags into o. It returns the problems with the values of flags, and an error
// if the flags can't be read.
func (o *options) parseFlags(args []string, usage io.Writer) (problems []error, err error) {
	flags := flag.NewFlagSet("hollow-nodes", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error
	// value defines a flag. The parsing continues after a flag whose value is invalid.
	value := func(name, usage string, set func(string) error) {
		flags.Func(name, usage, func(text string) error {
			if err := set(text); err != nil {
				problems = append(problems, fmt.Errorf("--%s %q: %w", name, text, err))
			}
			return nil
		})
	}
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the address of the API server and credentials; required")
	value("nodes", "number of nodes (default 1)", func(text string) (err error) {
		o.nodes, err = parseNumber(text, maxNodes)
		return err
	})
	flags.StringVar(&o.prefix, "name-prefix", "hollow-", "start of the nodes' names, followed by a number from 0")
	value("cpu", "CPUs of each node (default 4)", func(text string) (err error) {
		o.cpu, err = parseQuantity(text)
		return err
	})
	value("memory", "memory of each node (default 8Gi)", func(text string) (err error) {
		o.memory, err = parseQuantity(text)
		return err
	})
	value("pods", "maximum number of pods of each node (default 110)", func(text string) error {
		pods, err := parseNumber(text, maxPods)
		o.settings.MaxPods = int32(pods)
		return err
	})
	value("node-labels", "comma-separated labels NAME=VALUE of each node, for its registration", func(text string) (err error) {
		o.labels, err = cluster.ParseLabels(text)
		return err
	})
	value("register-with-taints", "comma-separated taints KEY=VALUE:EFFECT of each node, for its registration", func(text string) (err error) {
		o.taints, err = cluster.ParseTaints(text)
		return err
	})
	value("v", fmt.Sprintf("verbosity of the log; %d or more includes changes of pods, %d or more debug messages", infoVerbosity, debugVerbosity), func(text string) (err error) {
		o.verbosity, err = strconv.Atoi(text)
		return err
	})
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(usage)
		fmt.Fprintln(usage, "hollow-nodes adds simulated nodes to a Kubernetes cluster: their pods have statuses, but no containers. Flags:")
		flags.PrintDefaults()
	case err != nil:
		err = errors.Join(append(problems, fmt.Errorf("%w (--help lists the flags)", err))...)
	case flags.NArg() > 0:
		problems = append(problems, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	return problems, err
}

// complete computes the policies, and returns the problems that can be found only after all flags
// were read.
func (o *options) complete() (problems []error) {
	if o.kubeconfig == "" {
		problems = append(problems, errors.New("--kubeconfig is required"))
	}
	o.settings.RegisterWithTaints = o.taints
	o.settings.CgroupsPerQOS, o.settings.EnforceNodeAllocatable = false, nil
	o.settings.ClusterDNS = []string{clusterDNS}
	var err error
	o.policies, err = o.settings.Policies()
	// Validate sends no request, so any client will do.
	node := cluster.Config{Client: &kubernetes.Clientset{}, NodeName: o.nodeName(max(o.nodes, 1) - 1), Labels: o.labels, Taints: o.taints}
	return append(problems, err, node.Validate())
}

func parseNumber(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 1, fmt.Errorf("want a number from 1 to %d", most)
	}
	return n, nil
}

func parseQuantity(text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err == nil && q.Sign() <= 0 {
		err = errors.New("want more than 0")
	}
	return q, err
}
