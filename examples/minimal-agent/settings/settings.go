// Package settings reads the command line and the configuration file of minimal-agent.
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

// Settings are the values of the configuration file and the command line: the kubelet's settings,
// and settings that have a flag only.
type Settings struct {
	kubeletconfig.Settings
	// ConfigFile is the file of --config. Notes are remarks about the file that are not errors,
	// such as ignored fields. The program prints the notes when it starts.
	ConfigFile string
	Notes      []kubeletconfig.Problem

	NodeName, AgentName string
	// RootDir is the folder for the agent's files. Empty means a temporary folder.
	RootDir string
	// TokenFile is the file with the token that HTTP clients must send.
	TokenFile string
	// StopPods stops all pods when the agent exits. TakeOver treats all pods in the runtime
	// as pods of this agent.
	StopPods, TakeOver bool
	// DeadPerContainer is the number of exited instances that the agent keeps of each container.
	// DeadAll is the number of exited containers that the agent keeps in total. -1 means no limit.
	DeadPerContainer, DeadAll int

	// Listen is the address of the HTTP server. Access has the server's certificate and users.
	Listen string
	Access kubeletapi.Access
	// HealthListen and ReadOnlyListen are the addresses of healthzPort and readOnlyPort. They
	// are empty if the port is 0.
	HealthListen, ReadOnlyListen string
	// Policy has the kubelet's settings in the form that the managers need.
	Policy kubeletconfig.Policies
}

// Parse reads the command line and the file of --config. Flags override the file. The error
// reports every problem with the values at once. With --help, Parse writes the help text to
// usage and returns [flag.ErrHelp].
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
		// Parse the flags again, so that they override the values of the file.
		if given, err = o.parse(args, usage); err != nil {
			return o, err
		}
	}
	if err := o.complete(); err != nil {
		return o, err
	}
	return o, o.validate(given)
}

// parse reads the flags into o. It returns the configuration fields that the arguments set, each
// with the flag that set the field.
func (o *Settings) parse(args []string, usage io.Writer) (given map[string]string, err error) {
	flags := flag.NewFlagSet("minimal-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // commands.Program prints the error
	fields := o.register(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(usage)
		fmt.Fprintln(usage, "minimal-agent run runs the pods of a folder of manifests on a CRI runtime. Flags:")
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

// complete sets the defaults that depend on the host, and the values that other settings determine.
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
	for _, path := range []*string{&o.RootDir, &o.StaticPodPath, &o.TLSCertFile, &o.TLSPrivateKeyFile, &o.TokenFile, &o.Authentication.X509.ClientCAFile} {
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
	if o.HealthzPort != 0 {
		o.HealthListen = net.JoinHostPort(o.HealthzBindAddress, strconv.Itoa(int(o.HealthzPort)))
	}
	if o.ReadOnlyPort != 0 {
		o.ReadOnlyListen = net.JoinHostPort(o.Address, strconv.Itoa(int(o.ReadOnlyPort)))
	}
	// Ignore errors here: validate reports them later.
	o.Access = kubeletapi.Access{
		CertFile: o.TLSCertFile, KeyFile: o.TLSPrivateKeyFile, TokenFile: o.TokenFile,
		ClientCAFile: o.Authentication.X509.ClientCAFile, Anonymous: o.Authentication.Anonymous.Enabled,
	}
	o.Access.MinTLSVersion, o.Access.CipherSuites, o.Access.CurvePreferences, _ = o.TLS()
	o.Policy, _ = o.Policies()
	return nil
}

// validateAccess reports the settings of TLS and of users that contradict each other, or that
// require an API server.
func (o *Settings) validateAccess() (errs []error) {
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Authentication.Webhook.Enabled, "authentication.webhook.enabled: true requires an API server, which this agent does not have: set it to false")
	refuse(o.Authorization.Mode == kubeletconfig.Webhook, "authorization.mode: %s requires an API server, which this agent does not have: set it to %s", kubeletconfig.Webhook, kubeletconfig.AlwaysAllow)
	encrypted := o.TLSCertFile != ""
	refuse(o.Access.ClientCAFile != "" && !encrypted, "--client-ca-file (authentication.x509.clientCAFile) requires --tls-cert-file and --tls-private-key-file")
	refuse(o.TLSMinVersion != "" && !encrypted, "--tls-min-version (tlsMinVersion) requires --tls-cert-file and --tls-private-key-file")
	refuse(len(o.TLSCipherSuites) > 0 && !encrypted, "--tls-cipher-suites (tlsCipherSuites) requires --tls-cert-file and --tls-private-key-file")
	refuse(len(o.TLSCurvePreferences) > 0 && !encrypted, "tlsCurvePreferences requires --tls-cert-file and --tls-private-key-file")
	refuse(o.Access.Anonymous && !o.Access.Authenticates(), "--anonymous-auth (authentication.anonymous.enabled) requires --token-file or --client-ca-file")
	return errs
}

// validate reports every invalid setting. If the user set the setting with a flag, the error has
// the name of the flag. given is the result of parse.
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
		errs = append(errs, errors.New("--stop-pods and --shutdown-grace-period (or shutdownGracePeriod in the configuration file) cannot be used together"))
	}
	if o.PodLogsDir != "" && !o.TakeOver {
		errs = append(errs, errors.New("podLogsDir requires --take-over, because the agent deletes the logs of pods that are not its own in that folder"))
	}
	errs = append(errs, o.validateAccess()...)
	for _, p := range o.Check() {
		if name, ok := given[p.Field]; ok {
			p.Field = name
		}
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// FolderPeriod returns the interval at which the agent reads the folder of manifests again. If the
// setting has the kubelet's default, FolderPeriod returns zero, and the source chooses the
// interval: the kubelet's default suits only folders that can be watched.
func (o *Settings) FolderPeriod() time.Duration {
	if o.FileCheckFrequency == kubeletconfig.Default().FileCheckFrequency {
		return 0
	}
	return o.FileCheckFrequency.Duration
}

// Flags returns the names of all flags of the command run, each with two leading dashes.
func Flags() (all []string) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	new(Settings).register(flags)
	flags.VisitAll(func(f *flag.Flag) { all = append(all, "--"+f.Name) })
	return all
}

// FlagValues returns the values of all flags of the command run, by name. The value of manifest-url
// may contain a password.
func (o Settings) FlagValues() map[string]string {
	given := o
	flags, values := flag.NewFlagSet("run", flag.ContinueOnError), map[string]string{}
	o.register(flags)
	o = given // register has set fields to the defaults of their flags
	flags.VisitAll(func(f *flag.Flag) { values[f.Name] = f.Value.String() })
	return values
}

// Dump returns the configuration that Parse reads from args, as a KubeletConfiguration file with
// all fields. A comment in the file has the settings that have a flag only, except --config and the
// limits for dead containers.
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
