package fakecri

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// maxNetworkBits leaves a network room for one pod.
const maxNetworkBits = 30

// addresses hands out the addresses of an IPv4 network but the network's own,
// the bridge's and the broadcast address; like the host-local plugin it goes
// round, so that an address is used again as late as possible.
type addresses struct {
	network netip.Prefix
	size    uint32 // how many addresses the network has, but for one
	last    uint32 // the one handed out last, counted from the network's own
	used    map[uint32]bool
}

func newAddresses(network netip.Prefix) addresses {
	return addresses{network: network, size: 1<<(32-network.Bits()) - 1, last: 1, used: map[uint32]bool{}}
}

func (a *addresses) base() uint32 {
	raw := a.network.Addr().As4()
	return binary.BigEndian.Uint32(raw[:])
}

func (a *addresses) take() (string, error) {
	if uint64(len(a.used))+2 == uint64(a.size) {
		return "", fmt.Errorf("no IP addresses available in range set: %v", a.network)
	}
	for {
		a.last++
		if a.last == a.size {
			a.last = 2
		}
		if !a.used[a.last] {
			a.used[a.last] = true
			var raw [4]byte
			binary.BigEndian.PutUint32(raw[:], a.base()+a.last)
			return netip.AddrFrom4(raw).String(), nil
		}
	}
}

// release gives an address back. What is none is ignored.
func (a *addresses) release(ip string) {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is4() {
		raw := addr.As4()
		delete(a.used, binary.BigEndian.Uint32(raw[:])-a.base())
	}
}
