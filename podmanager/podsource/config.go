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

// DirectoryConfig configures a [Directory].
type DirectoryConfig struct {
	// Path is the folder with the manifests. It need not exist yet. Required.
	Path string
	// NodeName is the node's name: a DNS subdomain, in upper or lower case. The name of
	// each pod ends in the node's name in lower case. Required.
	NodeName string
	// Owner is the name of the agent that runs the pods. A UID that is computed from a
	// manifest depends on Owner. So two agents with different Owners use different UIDs,
	// even if their runtime, node name and manifest are the same. Default: empty.
	Owner string
	// Store receives the ConfigMaps and Secrets among the manifests, before Run delivers
	// the pods of the same pass. No other source may use the same Store. Default:
	// ConfigMaps and Secrets are rejected, like all other kinds except Pod.
	Store *Store
	// Period is the time between two passes of Run if the watch reports no change.
	// Default: 20s while the folder is watched, and 1s while it is polled.
	Period time.Duration
	// PollOnly disables the watch. Set it for file systems that do not notify about
	// changes made on other machines. Also set it in a synctest bubble, because an open
	// watch would block the bubble.
	PollOnly bool
	// Clock is the time source. Default: the system clock.
	Clock clock.Clock
	// Logger receives a line when a problem appears and another when it is resolved.
	// Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and health. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They run synchronously inside a pass. They must
// not block, and must not call the methods Run and Load of the source.
type Observer struct {
	// Loaded is called after every pass with the result and the error of the pass.
	Loaded func(Result, error)
	// ProblemsChanged is called when problems appear or are resolved, with each new and
	// each resolved problem once.
	ProblemsChanged func(added, resolved []Problem)
	// WatchChanged is called with nil when a [Directory] starts to watch its folder. It
	// is called with the cause when the Directory starts to poll the folder because it
	// cannot watch the folder.
	WatchChanged func(err error)
}

// Validate returns all problems with c as one joined error.
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

// period returns the time until the next pass if the watch reports no change.
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
