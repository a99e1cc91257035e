package fakecri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// Config configures a [Node]. The zero value is an empty node that cannot pull any image.
// New copies the Config, so the caller may change it afterwards.
type Config struct {
	// Images are the images in the node's store at the start.
	Images []Image
	// Registry holds the images that PullImage can pull in addition to Images. (Images can
	// be pulled again after their removal.) The pull of any other image returns NotFound,
	// unless PullAny is set.
	Registry []Image
	// PullAny makes a pull of any valid reference succeed: the node generates an image that
	// is neither in Images nor in Registry.
	PullAny bool
	// Programs defines what containers do. A key is an image name as in a manifest
	// ("demo/web:1" and "docker.io/demo/web:1" are the same). A key may also be the image
	// name, a space, and a command with its arguments, all words joined by single spaces.
	// The program then applies only to containers with this command. Containers of an image
	// without a program have the zero [Program], which runs for ever and exits at SIGTERM.
	Programs map[string]Program
	// ProgramFor returns the program of a container that is being created, for programs that
	// do not depend on one image, such as a program for a command in any image. If it returns
	// nil, Programs defines the program. If the program is invalid, CreateContainer returns an
	// error. The node calls ProgramFor with its lock held, so ProgramFor must not call the
	// node. It must not modify its argument. Optional.
	ProgramFor func(*runtimeapi.ContainerConfig) *Program
	// Disk is the filesystem with the images and the data that containers write.
	Disk Disk
	// PodNetwork is the IPv4 network of the pods' addresses, with a prefix of at most 30
	// bits. Default 10.88.0.0/16, or 127.88.0.0/16 if Listen is set. Two nodes that listen
	// at the same time need different networks.
	PodNetwork netip.Prefix
	// Listen, if set, opens the ports of programs, so that probes can connect to them. Use
	// [Network.Listen], which opens no sockets, or net.Listen. On Linux net.Listen can
	// listen on every address of 127.0.0.0/8; on other systems the address must be added to
	// an interface first. Call [Node.Shutdown] when done. The node calls Listen with its
	// lock held, so Listen must not call the node.
	Listen func(network, address string) (net.Listener, error)
	// Dial connects [Node.PortForwardStream] with a program. Set it to [Network.Dial] if Listen
	// is Network.Listen. Default: the dialer of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Streamer creates the [Streamer] that serves Exec, Attach and PortForward. New calls
	// it with the complete node. Without Streamer, the three methods return Unimplemented.
	Streamer func(*Node) (Streamer, error)
	// RuntimeHandlers are the names that RunPodSandbox accepts in addition to the empty
	// name. Default: "runc".
	RuntimeHandlers []string
	// Seed is part of all ids, so that two nodes in one test have different ids. Two nodes
	// with the same seed that receive the same calls create the same ids.
	Seed uint64
	// WriteLogs makes containers write the log lines of their program to their log path, in
	// the CRI log format. Without WriteLogs, the node writes no file.
	WriteLogs bool
	// Record records every call for [Node.Calls]. Record is off by default, because the
	// list of calls grows without a limit.
	Record bool
	// Clock is the time source. Default the system clock. With a fake clock the node's time
	// changes only when the test steps the clock.
	Clock clock.Clock
	// Logger receives changes of containers and sandboxes at debug level. Default: discard.
	Logger *slog.Logger
}

// Validate returns all problems with c as one joined error.
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
				errs = append(errs, fmt.Errorf("field %s[%d]: duplicate image name %q", field, i, name))
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
		return fmt.Errorf("field PodNetwork: %v is not an IPv4 network with room for pods", p)
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
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
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
