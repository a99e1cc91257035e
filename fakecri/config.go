package fakecri

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"k8s.io/utils/clock"
)

// Config says what node [New] makes. The zero value is an empty node that
// cannot pull anything. A Config is copied; the caller may reuse it.
type Config struct {
	// Images are in the node's store from the start.
	Images []Image
	// Registry holds what PullImage can fetch besides Images, which can always
	// be pulled again after they were removed. The pull of anything else is
	// answered with NotFound, unless PullAny is set.
	Registry []Image
	// PullAny makes a pull of any well-formed reference succeed: an image that
	// neither Images nor Registry knows is made up.
	PullAny bool
	// Programs says what containers do, by image name as a manifest has it
	// ("demo/web:1" and "docker.io/demo/web:1" are the same). An image without
	// a program runs for ever and ends at SIGTERM: the zero [Program].
	Programs map[string]Program
	// RuntimeHandlers are the names that RunPodSandbox accepts besides the
	// empty one. Default: "runc".
	RuntimeHandlers []string
	// Seed goes into all ids, so that two nodes in one test have different
	// ones. Two nodes of one seed that see the same calls make the same ids.
	Seed uint64
	// WriteLogs makes containers that have a log path write the lines of their
	// program there, in the CRI log format. Otherwise no file is ever touched.
	WriteLogs bool
	// Record keeps every call for [Node.Calls]. Off by default, because the
	// record grows for as long as the node is used.
	Record bool
	// Clock is the time source. Default the system clock. With a fake clock the
	// node's time stands still until it is stepped.
	Clock clock.Clock
	// Logger receives what happens to containers and sandboxes, at debug level.
	// Default: discard.
	Logger *slog.Logger
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	return errors.Join(
		validateImages("Images", c.Images),
		validateImages("Registry", c.Registry),
		validatePrograms(c.Programs),
	)
}

func validateImages(field string, images []Image) error {
	var errs []error
	seen := map[string]bool{}
	for i, img := range images {
		for _, name := range img.names() {
			ref, err := parseRef(name)
			if err != nil {
				errs = append(errs, fmt.Errorf("field %s[%d]: image name %q: %w", field, i, name, err))
				continue
			}
			if seen[ref.String()] {
				errs = append(errs, fmt.Errorf("field %s[%d]: image name %q is there already", field, i, name))
			}
			seen[ref.String()] = true
		}
	}
	return errors.Join(errs...)
}

func validatePrograms(programs map[string]Program) error {
	var errs []error
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		ref, err := parseRef(name)
		other, taken := seen[ref.String()]
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("field Programs: image name %q: %w", name, err))
		case taken:
			errs = append(errs, fmt.Errorf("field Programs: %q and %q are the same image", other, name))
		default:
			seen[ref.String()] = name
		}
		if err := programs[name].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("field Programs[%q]: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if len(c.RuntimeHandlers) == 0 {
		c.RuntimeHandlers = []string{"runc"}
	}
	c.RuntimeHandlers = slices.Clone(c.RuntimeHandlers)
	return c
}
