package podsource

import (
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// hostPort identifies a port of the host. Two containers that run at the same time can't use
// the same port.
type hostPort struct {
	protocol corev1.Protocol
	ip       string
	port     int32
}

// initContainer checks an init container. Only a sidecar (an init container with
// restartPolicy Always) can have probes and hooks.
func (v *validator) initContainer(at *field.Path, c *corev1.Container) {
	sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	v.hostPorts = make(map[hostPort]bool) // two init containers may have the same host port, because most of them run one after the other; the ports of sidecars are not compared with other containers either
	v.container(at, c)
	if sidecar {
		return
	}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
		{"lifecycle", c.Lifecycle != nil},
	} {
		if f.given {
			v.add(field.Forbidden(at.Child(f.name), "must only be set for init containers with restartPolicy Always"))
		}
	}
}

// container checks a container of any kind.
func (v *validator) container(at *field.Path, c *corev1.Container) {
	v.named(at.Child("name"), c.Name, validation.IsDNS1123Label)
	if v.names[c.Name] && c.Name != "" {
		v.add(field.Duplicate(at.Child("name"), c.Name))
	}
	v.names[c.Name] = true
	switch {
	case c.Image == "":
		v.add(field.Required(at.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		v.invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace")
	default:
		v.invalid(at.Child("image"), c.Image, checkImage(c.Image)...)
	}
	oneOf(v, at.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	oneOf(v, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	v.restartPolicy(at, c)
	v.ports(at.Child("ports"), c.Ports)
	v.env(at, c)
	v.security(at.Child("securityContext"), c.SecurityContext)
	v.resources(at.Child("resources"), &c.Resources, isContainerResource)
	v.resizePolicy(at.Child("resizePolicy"), c.ResizePolicy)
	v.mounts(at, c)
	v.probe(at.Child("livenessProbe"), c.LivenessProbe, true)
	v.probe(at.Child("readinessProbe"), c.ReadinessProbe, false)
	if p := c.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		v.add(field.Forbidden(at.Child("readinessProbe", "terminationGracePeriodSeconds"), "must not be set for readiness probes, which terminate no container"))
	}
	v.probe(at.Child("startupProbe"), c.StartupProbe, true)
	if l := c.Lifecycle; l != nil {
		v.hook(at.Child("lifecycle", "postStart"), l.PostStart)
		v.hook(at.Child("lifecycle", "preStop"), l.PreStop)
		v.stopSignal(at.Child("lifecycle", "stopSignal"), l.StopSignal)
	}
}

// restartPolicy checks a container's own policy and its rules (KEP-5307).
func (v *validator) restartPolicy(at *field.Path, c *corev1.Container) {
	if c.RestartPolicy != nil {
		if *c.RestartPolicy == "" {
			v.add(field.Required(at.Child("restartPolicy"), "must not be empty, remove it to use the pod's restartPolicy"))
		}
		oneOf(v, at.Child("restartPolicy"), *c.RestartPolicy, corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)
	}
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		v.add(field.Required(at.Child("restartPolicy"), "must be set if restartPolicyRules is set"))
	}
	for i, rule := range c.RestartPolicyRules {
		at := at.Child("restartPolicyRules").Index(i)
		if rule.Action == "" {
			v.add(field.Required(at.Child("action"), ""))
		}
		oneOf(v, at.Child("action"), rule.Action,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			v.add(field.Required(at.Child("exitCodes"), ""))
			continue
		}
		if rule.ExitCodes.Operator == "" {
			v.add(field.Required(at.Child("exitCodes", "operator"), ""))
		}
		oneOf(v, at.Child("exitCodes", "operator"), rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
	}
}

func (v *validator) ports(at *field.Path, ports []corev1.ContainerPort) {
	names := make(map[string]bool)
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			v.invalid(at.Child("name"), p.Name, validation.IsValidPortName(p.Name)...)
			if names[p.Name] {
				v.add(field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		v.invalid(at.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort))...)
		oneOf(v, at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if p.HostPort == 0 {
			continue
		}
		v.invalid(at.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort))...)
		key := hostPort{p.Protocol, p.HostIP, p.HostPort}
		if v.hostPorts[key] {
			v.add(field.Duplicate(at.Child("hostPort"), p.HostPort))
		}
		v.hostPorts[key] = true
	}
}

// hostNetworkPorts checks the host ports of a container on the host's network.
func (v *validator) hostNetworkPorts(at *field.Path, ports []corev1.ContainerPort) {
	for i, p := range ports {
		if p.HostPort != 0 && p.HostPort != p.ContainerPort {
			v.invalid(at.Index(i).Child("hostPort"), p.HostPort, "must be equal to containerPort if hostNetwork is true")
		}
	}
}

// probe checks a probe. If the last argument is true, the successThreshold must be 1.
func (v *validator) probe(at *field.Path, p *corev1.Probe, once bool) {
	if p == nil {
		return
	}
	v.handler(at, &corev1.LifecycleHandler{Exec: p.Exec, HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}, p.GRPC)
	between(v, at.Child("initialDelaySeconds"), &p.InitialDelaySeconds, 0, math.MaxInt32)
	between(v, at.Child("timeoutSeconds"), &p.TimeoutSeconds, 1, math.MaxInt32)
	between(v, at.Child("periodSeconds"), &p.PeriodSeconds, 1, math.MaxInt32)
	between(v, at.Child("failureThreshold"), &p.FailureThreshold, 1, math.MaxInt32)
	between(v, at.Child("terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds, 1, math.MaxInt64)
	most := int32(math.MaxInt32)
	if once {
		most = 1
	}
	between(v, at.Child("successThreshold"), &p.SuccessThreshold, 1, most)
}

func (v *validator) hook(at *field.Path, h *corev1.LifecycleHandler) {
	if h == nil {
		return
	}
	v.handler(at, h, nil)
	if h.Sleep != nil {
		between(v, at.Child("sleep", "seconds"), &h.Sleep.Seconds, 0, *v.spec.TerminationGracePeriodSeconds)
	}
}

// The stop signals that a container on Linux can have: the named signals, and the pattern
// of the real-time signals.
const (
	linuxSignals = "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL " +
		"SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 " +
		"SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ"
	realTimeSignals = `^SIGRT(MIN(\+([1-9]|1[0-5]))?|MAX(-([1-9]|1[0-4]))?)$`
)

func isLinuxSignal(name string) bool {
	isRealTime, err := regexp.MatchString(realTimeSignals, name)
	return slices.Contains(strings.Fields(linuxSignals), name) || err == nil && isRealTime
}

// stopSignal checks the signal that stops a container. The pod's operating system
// determines which signals are allowed.
func (v *validator) stopSignal(at *field.Path, signal *corev1.Signal) {
	switch os := v.spec.OS; {
	case signal == nil:
	case os == nil:
		v.add(field.Forbidden(at, "must not be set if spec.os.name is not set"))
	case os.Name == corev1.Linux && !isLinuxSignal(string(*signal)):
		v.add(field.NotSupported(at, string(*signal), strings.Fields(linuxSignals)))
	case os.Name == corev1.Windows && *signal != corev1.SIGTERM && *signal != corev1.SIGKILL:
		v.add(field.NotSupported(at, *signal, []corev1.Signal{corev1.SIGKILL, corev1.SIGTERM}))
	}
}

// handler checks that a hook or a probe has exactly one valid action. Only probes can have
// a gRPC action.
func (v *validator) handler(at *field.Path, h *corev1.LifecycleHandler, grpc *corev1.GRPCAction) {
	handlers := 0
	for _, given := range []bool{h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil, h.Sleep != nil, grpc != nil} {
		if given {
			handlers++
		}
	}
	switch handlers {
	case 0:
		v.add(field.Required(at, "must have one action"))
	case 1:
	default:
		v.add(field.Forbidden(at, "must not have more than one action"))
	}
	if h.Exec != nil && len(h.Exec.Command) == 0 {
		v.add(field.Required(at.Child("exec", "command"), ""))
	}
	if get := h.HTTPGet; get != nil {
		at := at.Child("httpGet")
		v.port(at.Child("port"), get.Port)
		oneOf(v, at.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for i, header := range get.HTTPHeaders {
			v.invalid(at.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName(header.Name)...)
		}
	}
	if h.TCPSocket != nil {
		v.port(at.Child("tcpSocket", "port"), h.TCPSocket.Port)
	}
	if grpc != nil {
		between(v, at.Child("grpc", "port"), &grpc.Port, 1, math.MaxUint16)
	}
}

func (v *validator) port(at *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		v.invalid(at, port.IntVal, validation.IsValidPortNum(port.IntValue())...)
		return
	}
	v.invalid(at, port.StrVal, validation.IsValidPortName(port.StrVal)...)
}
