package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// The kubelet's defaults of [Config].
const (
	// DefaultStatusPeriod is the default of Config.StatusPeriod.
	DefaultStatusPeriod = 10 * time.Second
	// DefaultLeaseDuration is the default of Config.LeaseDuration.
	DefaultLeaseDuration = 40 * time.Second
)

// Config configures a [Cluster]. The zero value of an optional field means its default. The Cluster
// retains the values to which the fields refer. Do not modify these values after [New].
type Config struct {
	// Client is the client of the API server. Its user must be system:node:NodeName in the group
	// system:nodes, or have the same permissions. Required.
	Client kubernetes.Interface
	// Heartbeats is the client for the node's status and its lease. If it differs from Client,
	// the rate limits of Client do not delay heartbeats. Default: Client.
	Heartbeats kubernetes.Interface
	// Events is the client for events. If it differs from Client, events do not use up the rate
	// limits of Client. Default: Client.
	Events kubernetes.Interface
	// NodeName is the name of the node. It must equal the NodeName of the [agent.Config].
	// Required.
	NodeName string

	// NoRegistration means that another client creates the node. In this case, Labels, Taints and
	// ProviderID are not used.
	NoRegistration bool
	// Labels are set on the node when it is created, in addition to the labels of the agent. They
	// replace labels of the agent with the same names. If the node exists already, the agent changes
	// only the labels that the kubelet also updates: host name, operating system, architecture,
	// zone, region and instance type. Optional.
	Labels map[string]string
	// Taints are set on the node when it is created. Optional.
	Taints []corev1.Taint
	// ProviderID is set on the node when it is created. It identifies the machine to a cloud
	// provider. Optional.
	ProviderID string

	// StatusPeriod is the time between two checks whether the node's status has changed. A change
	// of the condition Ready or of a pressure condition is reported at once. Default
	// [DefaultStatusPeriod].
	StatusPeriod time.Duration
	// ReportPeriod is the time after which an unchanged status of the node is reported again.
	// Default [nodestatus.ReportPeriod].
	ReportPeriod time.Duration
	// LeaseDuration is the duration of the node's lease, in whole seconds. The lease is renewed
	// after a quarter of it. Default [DefaultLeaseDuration].
	LeaseDuration time.Duration

	// State stores the pods of the node, the services of their namespaces and the runtime classes.
	// If the agent starts while the API server can't be reached, it manages the stored pods until
	// it gets a list of pods. The stored specs may contain confidential data, so only the agent may
	// read them. If nil, the agent manages no pods of the API server until it gets a list of pods.
	// The containers of these pods keep running meanwhile.
	State state.Store

	// Random returns a random number in [0,1). It spreads requests over time. It must be safe for
	// concurrent use. Default: the generator of math/rand/v2.
	Random func() float64
	// Clock is the time source. Default: the system clock. The back-off of client-go's event
	// recorder always uses the system clock.
	Clock clock.WithTicker
	// Logger receives structured logs, including the logs of client-go. Default: discard.
	Logger *slog.Logger
}

// Validate returns all problems with c as one error. It sends no request.
func (c Config) Validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("cluster: Client is required"))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("cluster: NodeName is required"))
	} else {
		for _, problem := range validation.IsDNS1123Subdomain(c.NodeName) {
			errs = append(errs, fmt.Errorf("cluster: NodeName %q: %s", c.NodeName, problem))
		}
	}
	for name, value := range c.Labels {
		for _, problem := range validation.IsQualifiedName(name) {
			errs = append(errs, fmt.Errorf("cluster: Labels[%q]: %s", name, problem))
		}
		for _, problem := range validation.IsValidLabelValue(value) {
			errs = append(errs, fmt.Errorf("cluster: Labels[%q]=%q: %s", name, value, problem))
		}
	}
	for i, t := range c.Taints {
		for _, problem := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, fmt.Errorf("cluster: Taints[%d]: key %q: %s", i, t.Key, problem))
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"StatusPeriod", c.StatusPeriod}, {"ReportPeriod", c.ReportPeriod}, {"LeaseDuration", c.LeaseDuration}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("cluster: %s is %v, want at least 0", d.field, d.value))
		}
	}
	if c.LeaseDuration%time.Second != 0 {
		errs = append(errs, fmt.Errorf("cluster: LeaseDuration is %v, want whole seconds", c.LeaseDuration))
	}
	return errors.Join(errs...)
}

// withDefaults returns c with the defaults of the fields that are not set.
func (c Config) withDefaults() Config {
	if c.Heartbeats == nil {
		c.Heartbeats = c.Client
	}
	if c.Events == nil {
		c.Events = c.Client
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.StatusPeriod, DefaultStatusPeriod}, {&c.ReportPeriod, nodestatus.ReportPeriod}, {&c.LeaseDuration, DefaultLeaseDuration},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
