// Package settings is the command line of minimal-agent and its configuration file.
package settings

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

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// Settings are what the configuration file and the command line say: the kubelet's settings,
// and those that only the command line has.
type Settings struct {
	kubeletconfig.Settings
	// ConfigFile is the file that --config names, and Notes are what a reader of the
	// program's first lines should know of it.
	ConfigFile string
	Notes      []kubeletconfig.Problem

	NodeName, AgentName string
	// RootDir is the folder of the agent's files. Empty: a temporary one.
	RootDir string
	// TokenFile has the token that requests must bring.
	TokenFile string
	// StopPods has the pods end with the agent. TakeOver treats all pods of the runtime as
	// the agent's.
	StopPods, TakeOver bool
	// DeadPerContainer and DeadAll are how many ended containers are kept, of one container
	// and in all. -1: no limit.
	DeadPerContainer, DeadAll int

	// Listen is the address of the HTTP server, and Access decides who may ask it.
	Listen string
	Access kubeletapi.Access
	// Policy is what the kubelet's settings mean for the managers.
	Policy kubeletconfig.Policies
}

// Parse reads the command line and the file that it names; the command line wins. The error
// reports every problem with the values at once. The text that --help asks for goes to usage.
func Parse(args []string, usage io.Writer) (Settings, error) {
	o := Settings{Settings: kubeletconfig.Default()}
	given, err := o.parse(args, usage)
	if err != nil {
		return o, err
	}
	if o.ConfigFile != "" {
		file, err := kubeletconfig.Load(o.ConfigFile)
		if err != nil {
			return o, err
		}
		o = Settings{Settings: file.Settings, Notes: file.Notes}
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
func (o *Settings) parse(args []string, usage io.Writer) (given map[string]string, err error) {
	flags := flag.NewFlagSet("minimal-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // commands.Program reports what is wrong, once
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
func (o *Settings) complete() error {
	if o.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--node-name is not set, and the host name could not be read: %w", err)
		}
		o.NodeName = strings.ToLower(name)
	}
	if o.RootDir == "" && o.ContainerRuntimeEndpoint != kubeletconfig.EmbeddedEndpoint {
		o.RootDir = "/var/lib/minimal-agent"
	}
	for _, path := range []*string{&o.RootDir, &o.StaticPodPath, &o.TLSCertFile, &o.TLSPrivateKeyFile, &o.TokenFile} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("%s: %w", *path, err)
		}
		*path = abs
	}
	o.Listen = net.JoinHostPort(o.Address, strconv.Itoa(int(o.Port)))
	o.Access = kubeletapi.Access{CertFile: o.TLSCertFile, KeyFile: o.TLSPrivateKeyFile, TokenFile: o.TokenFile}
	o.Policy, _ = o.Policies() // validate reports what is wrong with the settings
	return nil
}

// validate says what is wrong, of a setting by the name of its flag if that was given.
func (o *Settings) validate(given map[string]string) error {
	var errs []error
	for _, problem := range validation.IsDNS1123Subdomain(o.NodeName) {
		errs = append(errs, fmt.Errorf("--node-name %q: %s", o.NodeName, problem))
	}
	for _, problem := range validation.IsValidLabelValue(o.AgentName) {
		errs = append(errs, fmt.Errorf("--agent-name %q: %s", o.AgentName, problem))
	}
	if o.AgentName == "" {
		errs = append(errs, errors.New("--agent-name is empty"))
	}
	if o.StopPods && (o.ShutdownGracePeriod.Duration > 0 || slices.ContainsFunc(o.ShutdownGracePeriodByPodPriority,
		func(p kubeletconfig.ShutdownGracePeriodByPodPriority) bool { return p.ShutdownGracePeriodSeconds > 0 })) {
		errs = append(errs, errors.New("--stop-pods and --shutdown-grace-period, or shutdownGracePeriod: want one of them"))
	}
	if o.PodLogsDir != "" && !o.TakeOver {
		errs = append(errs, errors.New("podLogsDir requires --take-over, because logs there of pods that are not this agent's are removed"))
	}
	for _, p := range o.Check() {
		if name, ok := given[p.Field]; ok {
			p.Field = name
		}
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// FolderPeriod returns how often the folder of manifests is read again. Zero: the source
// decides, because the kubelet's default is right only where the folder can be watched.
func (o *Settings) FolderPeriod() time.Duration {
	if o.FileCheckFrequency == kubeletconfig.Default().FileCheckFrequency {
		return 0
	}
	return o.FileCheckFrequency.Duration
}

// Flags returns the names of all flags, with their dashes.
func Flags() (all []string) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	new(Settings).register(flags)
	flags.VisitAll(func(f *flag.Flag) { all = append(all, "--"+f.Name) })
	return all
}

// Dump returns the configuration that the arguments make, as a file that says all of it. What
// only flags say is a comment.
func Dump(args []string) ([]byte, error) {
	o, err := Parse(args, io.Discard)
	if err != nil {
		return nil, err
	}
	text, err := o.YAML()
	flags := fmt.Sprintf("# --node-name=%s --agent-name=%s --root-dir=%s --token-file=%s --stop-pods=%t --take-over=%t",
		o.NodeName, o.AgentName, o.RootDir, o.TokenFile, o.StopPods, o.TakeOver)
	return fmt.Appendf(nil, "%s\n%s", printable.Line(flags), text), err
}
