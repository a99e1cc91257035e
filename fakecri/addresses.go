package fakecri

import (
	"errors"
	"fmt"
)

// addresses hands out the addresses of 10.88.0.0/16 but the network's own, the
// bridge's and the broadcast address; like the host-local plugin it goes round,
// so that an address is used again as late as possible.
type addresses struct {
	last uint16
	used map[uint16]bool
}

func (a *addresses) take() (string, error) {
	if a.used == nil {
		a.used, a.last = map[uint16]bool{}, 1
	}
	const usable = 1<<16 - 3
	if len(a.used) == usable {
		return "", errors.New("no IP addresses available in range set: 10.88.0.1-10.88.255.254")
	}
	for {
		a.last++
		if a.last == 1<<16-1 {
			a.last = 2
		}
		if !a.used[a.last] {
			a.used[a.last] = true
			return fmt.Sprintf("10.88.%d.%d", a.last>>8, a.last&0xff), nil
		}
	}
}

func (a *addresses) release(ip string) {
	var hi, lo uint16
	if _, err := fmt.Sscanf(ip, "10.88.%d.%d", &hi, &lo); err == nil {
		delete(a.used, hi<<8|lo)
	}
}
