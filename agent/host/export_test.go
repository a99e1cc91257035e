package host

import "net"

// On returns c for a machine whose files are below root and whose network interfaces have
// the given addresses.
func (c LocalConfig) On(root string, interfaces func() ([]net.Addr, error)) LocalConfig {
	c.machine = machine{root: root, interfaces: interfaces}
	return c
}
