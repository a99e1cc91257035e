package fakecri

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// maxNetworkBits is the longest prefix of a network with room for one pod.
const maxNetworkBits = 30

// addresses allocates the addresses of an IPv4 network, except the address of the network,
// the address of the bridge and the broadcast address. Like the host-local plugin, it
// allocates round-robin, so that an address is reused as late as possible.
type addresses struct {
	network netip.Prefix
	size    uint32 // number of addresses of the network, minus one
	last    uint32 // the last allocated address, as an offset from the address of the network
	used    map[uint32]bool
}

func newAddresses(network netip.Prefix) addresses {
	return addresses{network: network, size: 1<<(32-network.Bits()) - 1, last: 1, used: map[uint32]bool{}}
}

func (a *addresses) base() uint32 {
	raw := a.network.Addr().As4()
	return binary.BigEndian.Uint32(raw[:])
}

func (a *addresses) allocate() (string, error) {
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

// release frees an address. It ignores text that is not an IPv4 address.
func (a *addresses) release(ip string) {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is4() {
		raw := addr.As4()
		delete(a.used, binary.BigEndian.Uint32(raw[:])-a.base())
	}
}
