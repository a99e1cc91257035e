package oomwatch

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// truth returns the facts of a step as the kernel meant them: those of ours.
func (w *World) truth(step int) judge.Facts {
	f := judge.Facts{}
	if step == 0 && w.History {
		return f
	}
	for _, k := range w.Steps[step].Kills {
		name := "kill " + strconv.Itoa(k.PID)
		f[name+"/process"] = k.Process
		f[name+"/victim cgroup"] = k.Victim
		f[name+"/limit cgroup"] = k.Limit
		f[name+"/constraint"] = k.Constraint
		f[name+"/second"] = fmt.Sprint(int((time.Duration(step) * pause).Seconds()))
		if k.Told != "" {
			addEvent(f, k.message(k.Told))
		}
	}
	return f
}

// message returns the event about the node.
func (k Kill) message(process string) string {
	return fmt.Sprintf("Warning SystemOOM System OOM encountered, victim process: %s, pid: %d", process, k.PID)
}

// find returns the kill that a fact is about.
func (s Step) find(fact string) (k Kill, ok bool) {
	for _, k := range s.Kills {
		pid := strconv.Itoa(k.PID)
		if fact == "event about "+pid || len(fact) > len("kill "+pid) && fact[:len("kill "+pid)+1] == "kill "+pid+"/" {
			return k, true
		}
	}
	return Kill{}, false
}
