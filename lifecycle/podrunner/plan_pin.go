package podrunner

import (
	"cmp"
	"fmt"
	"strings"
)

// Cpuset holds the CPUs and memory nodes that a container may use, as lists
// such as "0-3,8". Empty means not set, or unknown.
type Cpuset struct{ CPUs, Mems string }

// The method or returns c, with empty fields replaced by the fields of other.
func (c Cpuset) or(other Cpuset) Cpuset {
	return Cpuset{CPUs: cmp.Or(c.CPUs, other.CPUs), Mems: cmp.Or(c.Mems, other.Mems)}
}

// Pinning holds the current and the wanted cpuset of a running container. An
// empty field in Wanted means no change.
type Pinning struct{ Now, Wanted Cpuset }

// Pin is a change of the cpuset of a running container.
type Pin struct {
	ID, Name string
	// From and To have only the fields that change. A field of From is empty if
	// the current value is not set or unknown.
	From, To Cpuset
	Reason   Reason
}

// String explains p in one line.
func (p Pin) String() string {
	var what []string
	change := func(name, from, to string) {
		switch {
		case to == "":
		case from == "":
			what = append(what, fmt.Sprintf("%s to %s", name, to))
		default:
			what = append(what, fmt.Sprintf("%s %s → %s", name, from, to))
		}
	}
	change("cpus", p.From.CPUs, p.To.CPUs)
	change("mems", p.From.Mems, p.To.Mems)
	return fmt.Sprintf("pin container %s (%s): %s: %s", p.Name, p.ID, strings.Join(what, ", "), p.Reason)
}

// pins plans the changes of the cpusets of containers that keep running.
func (p *planner) pins() {
	if len(p.Pinnings) == 0 {
		return
	}
	for c, s := range runningContainers(p.Pod, p.Status) {
		pinning := p.Pinnings[s.GetId()]
		pin := Pin{ID: s.GetId(), Name: c.Name, Reason: "its allocators assign another cpuset"}
		if is, to := pinning.Now.CPUs, pinning.Wanted.CPUs; to != "" && is != to {
			pin.From.CPUs, pin.To.CPUs = is, to
		}
		if is, to := pinning.Now.Mems, pinning.Wanted.Mems; to != "" && is != to {
			pin.From.Mems, pin.To.Mems = is, to
		}
		if pin.To == (Cpuset{}) || p.kills(s) {
			continue
		}
		if pin.From == (Cpuset{}) {
			pin.Reason = "its current cpuset is not set or unknown"
		}
		p.Pin = append(p.Pin, pin)
	}
}
