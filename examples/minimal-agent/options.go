package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
)

// options are what the configuration file and the command line say: the kubelet's
// settings, and those that only the command line has.
type options struct {
	kubeletconfig.Settings
	configFile string
	notes      []kubeletconfig.Problem // on the file, for whoever reads what is printed at the start

	nodeName  string
	agentName string
	rootDir   string
	tokenFile string
	stopPods  bool
	takeOver  bool

	deadPerContainer, deadAll int

	// What follows from the settings.
	listen   string
	access   server.Access // who may ask over HTTP
	policies kubeletconfig.Policies
}

// parseOptions reads the command line and the file that it names; what is on the
// command line wins. It names every problem with the values at once. What --help
// asks for goes to usage.
func parseOptions(args []string, usage io.Writer) (options, error) {
	o := options{Settings: kubeletconfig.Default()}
	given, err := o.parse(args, usage)
	if err != nil {
		return o, err
	}
	if o.configFile != "" {
		file, err := kubeletconfig.Load(o.configFile)
		if err != nil {
			return o, err
		}
		o = options{Settings: file.Settings, notes: file.Notes}
		// The flags again, over what the file says: those that are not given leave it.
		if given, err = o.parse(args, usage); err != nil {
			return o, err
		}
	}
	if err := o.complete(); err != nil {
		return o, err
	}
	return o, o.validate(given)
}

// parse reads the flags into o and returns the fields of the configuration that
// were given, with their flags.
func (o *options) parse(args []string, usage io.Writer) (given map[string]string, err error) {
	flags := flag.NewFlagSet("minimal-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main says what is wrong, once
	fields := o.register(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(usage)
		fmt.Fprintln(usage, "minimal-agent runs the pods of a folder of manifests on a CRI runtime. Its flags:")
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (--help lists the flags)", err)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	given = map[string]string{}
	flags.Visit(func(f *flag.Flag) {
		if field := fields[f.Name]; field != "" {
			given[field] = "--" + f.Name
		}
	})
	return given, nil
}

// complete fills in what depends on the machine, and what the settings mean.
func (o *options) complete() error {
	if o.nodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("no --node-name, and the host's is not to be had: %w", err)
		}
		o.nodeName = strings.ToLower(name)
	}
	if o.rootDir == "" && o.ContainerRuntimeEndpoint != kubeletconfig.EmbeddedEndpoint {
		o.rootDir = "/var/lib/minimal-agent"
	}
	for _, path := range []*string{&o.rootDir, &o.StaticPodPath, &o.TLSCertFile, &o.TLSPrivateKeyFile, &o.tokenFile} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("%s: %w", *path, err)
		}
		*path = abs
	}
	o.listen = net.JoinHostPort(o.Address, strconv.Itoa(int(o.Port)))
	o.access = server.Access{CertFile: o.TLSCertFile, KeyFile: o.TLSPrivateKeyFile, TokenFile: o.tokenFile}
	o.policies, _ = o.Policies() // validate reports what is wrong with the settings
	return nil
}

// validate says what is wrong, of a setting by the name of its flag if that was given.
func (o *options) validate(given map[string]string) error {
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
	if o.stopPods && (o.ShutdownGracePeriod.Duration > 0 || slices.ContainsFunc(o.ShutdownGracePeriodByPodPriority,
		func(p kubeletconfig.ShutdownGracePeriodByPodPriority) bool { return p.ShutdownGracePeriodSeconds > 0 })) {
		errs = append(errs, errors.New("--stop-pods and --shutdown-grace-period, or shutdownGracePeriod: want one of them"))
	}
	if o.PodLogsDir != "" && !o.takeOver {
		errs = append(errs, errors.New("podLogsDir: logs of pods that are not this agent's are removed there: it takes --take-over"))
	}
	for _, p := range o.Check() {
		if name, ok := given[p.Field]; ok {
			p.Field = name
		}
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// cgroupParent is the cgroup below which pods have theirs, empty if they have none.
func (o *options) cgroupParent() string {
	if o.policies.Cgroups == nil {
		return ""
	}
	return o.policies.Cgroups.Parent
}

// folderPeriod is how often the folder of manifests is looked at. What the kubelet
// does by default is right only where the folder can be watched: the source decides.
func (o *options) folderPeriod() time.Duration {
	if o.FileCheckFrequency == kubeletconfig.Default().FileCheckFrequency {
		return 0
	}
	return o.FileCheckFrequency.Duration
}
