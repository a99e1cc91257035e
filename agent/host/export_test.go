package host

import "net"

// On returns c for a machine with its files below root and network interfaces with the given
// addresses.
func (c LocalConfig) On(root string, interfaces func() ([]net.Addr, error)) LocalConfig {
	c.machine = machine{root: root, interfaces: interfaces}
	return c
}
