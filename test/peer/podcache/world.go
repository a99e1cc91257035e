package podcache

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is a history of a cache.
type World struct {
	Operations []Operation

	model []modelStep // made by the kubelet's side, for the rules
}

// An Operation is one call.
type Operation struct {
	Kind  Kind
	Pod   string
	At    int    // its time, in seconds
	Name  string // pod name in the status; empty for no status
	Fails bool   // an error is set
	Who   int    // number of the cancelled waiter
	// Except is set if a global time excludes the pod. The kubelet sets no global time before
	// the inspection of all pods, so its side does nothing then.
	Except bool
}

// A Kind is the kind of an operation.
type Kind string

const (
	set      Kind = "set"
	observed Kind = "observed"
	deleted  Kind = "delete"
	global   Kind = "global time"
	wait     Kind = "wait"
	giveUp   Kind = "cancel wait"
)

func uids() []string { return []string{"p1", "p2"} }

func newWorld(d *judge.Draw) *World {
	w, now, waiters := &World{}, 10, 0
	odd := d.Chance(50) // times of the past
	for range d.Between(2, 25) {
		now += judge.Pick(d, 1, 1, 2, 0)
		o := Operation{
			Kind: judge.Pick(d, set, global, wait, set, global, wait, observed, deleted, giveUp),
			Pod:  judge.Pick(d, uids()...), At: now,
		}
		if odd && d.Chance(20) {
			o.At -= d.Between(1, 4)
		}
		switch o.Kind {
		case set:
			o.Fails = d.Chance(20)
			if o.Name = fmt.Sprint("status ", len(w.Operations)); o.Fails && d.Chance(50) {
				o.Name = ""
			}
		case wait:
			o.At = max(0, now+judge.Pick(d, 1, 0, -1, 3, -3, -100))
			waiters++
		case giveUp:
			if o.Who = d.Int(waiters); waiters == 0 {
				continue
			}
		case global:
			o.Except = d.Chance(30)
		case observed, deleted:
		}
		w.Operations = append(w.Operations, o)
	}
	return w
}

// String describes a world.
func (w *World) String() string {
	var b strings.Builder
	for i, o := range w.Operations {
		fmt.Fprintf(&b, "step %d: %s %s at %d", i, o.Kind, o.Pod, o.At)
		switch {
		case o.Except:
			b.WriteString(", except for the pod")
		case o.Kind == giveUp:
			fmt.Fprintf(&b, ", waiter %d", o.Who)
		case o.Kind == set && o.Fails:
			fmt.Fprintf(&b, ", %q and an error", o.Name)
		case o.Kind == set:
			fmt.Fprintf(&b, ", %q", o.Name)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// at returns the time of a second. Only readers request second 0: such a reader accepts a
// status of any time.
func at(second int) time.Time {
	if second == 0 {
		return time.Time{}
	}
	return time.Unix(int64(second)+1_000_000, 0)
}
