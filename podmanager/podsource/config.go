package podsource

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// DirectoryConfig says which folder a [Directory] reads and for which node.
type DirectoryConfig struct {
	// Path is the folder of the manifests. It need not exist yet. Required.
	Path string
	// NodeName is the node's name, a DNS subdomain in any case. Each pod's name
	// ends in it, in lower case. Required.
	NodeName string
	// Owner says whose pods these are, and goes into the UIDs that are derived: two
	// agents that share a runtime, a node's name and a manifest must not take each
	// other's pod for theirs. Default: nobody's in particular.
	Owner string
	// Store takes the ConfigMaps and Secrets among the manifests, before Run tells of
	// the pods that came with them. It belongs to this source alone.
	// Default: they are refused as everything that is not a Pod.
	Store *Store
	// Period is the time between two passes of Run while nothing tells of a change.
	// Default: 20s while the folder is watched, and 1s while it can't be.
	Period time.Duration
	// PollOnly leaves the folder unwatched: for file systems that tell nobody of
	// changes made elsewhere, and for tests in a synctest bubble, which an open
	// watch would block.
	PollOnly bool
	// Clock is the time source. Default: the system clock.
	Clock clock.Clock
	// Logger receives structured logs: a line when a problem appears and one when
	// it is gone. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and health. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They run synchronously inside a pass, must not
// block and must not call a method that starts one.
type Observer struct {
	// Loaded is called after every pass with what it returned.
	Loaded func(Result, error)
	// ProblemsChanged is called when problems have appeared or are gone, with each
	// of them once.
	ProblemsChanged func(added, gone []Problem)
	// WatchChanged is called when a [Directory] begins to watch its folder, with
	// nil, and when it can't and polls instead, with the reason.
	WatchChanged func(err error)
}

// Validate reports every problem with c, joined.
func (c DirectoryConfig) Validate() error {
	var errs []error
	if c.Path == "" {
		errs = append(errs, errors.New("field Path is required"))
	}
	errs = append(errs, checkNodeName(c.NodeName)...)
	if c.Period < 0 {
		errs = append(errs, fmt.Errorf("field Period: %v is negative", c.Period))
	}
	return errors.Join(errs...)
}

func checkNodeName(name string) (errs []error) {
	if name == "" {
		return []error{errors.New("field NodeName is required")}
	}
	for _, msg := range validation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, fmt.Errorf("field NodeName: %q: %s", name, msg))
	}
	return errs
}

func (c DirectoryConfig) withDefaults() DirectoryConfig {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Observer = c.Observer.withDefaults()
	return c
}

// period is how long to wait when nothing tells of a change.
func (c DirectoryConfig) period(watched bool) time.Duration {
	switch {
	case c.Period > 0:
		return c.Period
	case watched:
		return 20 * time.Second
	default:
		return time.Second
	}
}

func (c DirectoryConfig) origin() origin {
	return origin{source: podspec.SourceFile, node: c.NodeName, owner: c.Owner, objects: c.Store != nil}
}

func (o Observer) withDefaults() Observer {
	if o.Loaded == nil {
		o.Loaded = func(Result, error) {}
	}
	if o.ProblemsChanged == nil {
		o.ProblemsChanged = func(_, _ []Problem) {}
	}
	if o.WatchChanged == nil {
		o.WatchChanged = func(error) {}
	}
	return o
}
