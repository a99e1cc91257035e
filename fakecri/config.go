package fakecri

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
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
	// ("demo/web:1" and "docker.io/demo/web:1" are the same). After a space a
	// name may have a command with its arguments, their words joined by single
	// spaces: that program is for containers with this command alone. An image
	// without a program runs for ever and ends at SIGTERM: the zero [Program].
	Programs map[string]Program
	// Disk is the filesystem that holds the images and what containers write.
	Disk Disk
	// PodNetwork is where pods get their addresses: an IPv4 network of at most
	// 30 bits. Default 10.88.0.0/16, or 127.88.0.0/16 if Listen is set. Give two
	// nodes that listen at the same time different ones.
	PodNetwork netip.Prefix
	// Listen, if set, makes programs listen on their ports, so that probes can
	// be made: [Network.Listen], which opens no sockets, or net.Listen. On Linux
	// net.Listen can listen on every address of 127.0.0.0/8; elsewhere it must be
	// added to an interface first. Call [Node.Shutdown] when done. Listen is called
	// with the node locked.
	Listen func(network, address string) (net.Listener, error)
	// Streamer makes what answers Exec, Attach and PortForward; New calls it
	// last, with the node. Without it they are Unimplemented. See [Streamer].
	Streamer func(*Node) (Streamer, error)
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
		validateLayers(c.Images, c.Registry),
		validatePrograms(c.Programs, c.knows),
		c.validateNetwork(),
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
		if err := img.validate(); err != nil {
			errs = append(errs, fmt.Errorf("field %s[%d]: %w", field, i, err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) validateNetwork() error {
	p := c.PodNetwork
	if p.IsValid() && (!p.Addr().Is4() || p.Bits() > maxNetworkBits || p.Masked() != p) {
		return fmt.Errorf("field PodNetwork: %v is no IPv4 network with room for pods", p)
	}
	return nil
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
	if !c.PodNetwork.IsValid() {
		c.PodNetwork = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88}), 16)
		if c.Listen != nil {
			c.PodNetwork = netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 88}), 16)
		}
	}
	c.Disk.CapacityBytes = cmp.Or(c.Disk.CapacityBytes, defaultDiskBytes)
	c.Disk.Inodes = cmp.Or(c.Disk.Inodes, defaultDiskInodes)
	c.RuntimeHandlers = slices.Clone(c.RuntimeHandlers)
	return c
}
