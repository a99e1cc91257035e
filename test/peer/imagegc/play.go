package imagegc

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// An agent is one side: a manager that the test calls in steps.
type agent interface {
	// start creates a manager, also after a restart. It fails if the policy is invalid.
	start() error
	// act does one step and returns the reason of each deletion attempt, and the error. The
	// first collection of a loop is part of its start.
	act(ctx context.Context, what string) (reasons []string, err error)
	// status returns the images of a node status.
	status(ctx context.Context) string
	stop()
}

// A bed is the environment of one side.
type bed struct {
	node      *node
	began     time.Time // start of the agent
	memories  [memories]memory
	muteSince map[string]time.Time
}

// play plays a world with one side and returns the facts of each step.
func play(t *testing.T, w *World, side func(*testing.T, *node) agent) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx := klog.NewContext(t.Context(), logr.Discard())
		n := newNode(w)
		b, a := &bed{node: n}, side(t, n)
		for i, s := range w.Steps {
			time.Sleep(s.After)
			n.faults = s.Faults
			restart := i == 0
			for _, c := range s.Changes {
				n.change(c)
				restart = restart || c.Do == "restart"
			}
			act := s.Act
			if restart {
				if b.restart(); w.Loop {
					act = "collect"
				}
				if err := a.start(); err != nil {
					all = append(all, judge.Facts{"policy": err.Error()})
					return
				}
			}
			v := b.look()
			if v.ties() && (!restart || !w.Loop) {
				act = "detect"
			}
			v.act, v.restart = act, restart
			w.seen = append(w.seen, v)
			n.began = time.Now()
			reasons, err := a.act(ctx, act)
			all = append(all, n.facts(act, err, reasons))
			if act == "detect" && !v.failed() {
				all[i]["status"] = a.status(ctx)
			}
			b.save()
			n.tries, n.hooks, n.events, n.listed = nil, nil, nil, 0
		}
		a.stop()
	})
	return all
}

// restart replaces the memories with those of a new process. The previous process has saved
// its memory if it ran a loop that was stopped.
func (b *bed) restart() {
	if ran := !b.began.IsZero(); ran && b.node.w.Loop {
		for kind := range b.memories {
			b.memories[kind].changed = true
			b.memories[kind].save(b.node)
		}
	}
	b.began, b.muteSince = time.Now(), map[string]time.Time{}
	for kind := range b.memories {
		b.memories[kind].restart(b.node, kind)
	}
}

func (b *bed) save() {
	for kind := range b.memories {
		b.memories[kind].save(b.node)
	}
}

// facts returns the observations of a step.
func (n *node) facts(act string, err error, reasons []string) judge.Facts {
	f := judge.Facts{"act": act, "hook": strings.Join(n.hooks, "; ")}
	var order []string
	for i, try := range n.tries {
		text := "?"
		if i < len(reasons) {
			text = reasons[i]
		}
		if try.err != nil {
			text += ", failed"
		}
		f[try.name+" deletion"] += text + ";"
		order = append(order, try.name)
	}
	if n.w.Workers == 1 {
		f["order"] = strings.Join(order, ", ")
	}
	for _, e := range n.events {
		reason, message, _ := strings.Cut(e, " ")
		f["event "+reason] += message + ";"
	}
	f["error"], f["told"] = faults(err), n.told
	if act == "collect" && err != nil {
		f["amounts"] = regexp.MustCompile(`wanted to free -?\d+ bytes, but freed \d+`).FindString(err.Error())
	}
	return f
}

// faults returns the faults and the texts about space that an error contains.
func faults(err error) string {
	if err == nil {
		return ""
	}
	var found []string
	for _, cause := range faultNames() {
		if strings.Contains(err.Error(), cause) {
			found = append(found, cause)
		}
	}
	if _, full, ok := strings.Cut(err.Error(), "Insufficient free"); ok {
		full, _, _ = strings.Cut(full, "\n")
		found = append(found, "Insufficient free"+full)
	}
	if len(found) == 0 {
		return err.Error()
	}
	return strings.Join(found, "; ")
}

func (n *node) hook(ids []string, began time.Time) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = n.w.name(id, "")
	}
	slices.Sort(names)
	n.hooks = append(n.hooks, fmt.Sprintf("[%s] %v", strings.Join(names, ", "), began.Sub(n.began)))
}

// faultNames returns the texts that identify faults in errors.
func faultNames() []string {
	return []string{
		"fault:images", "fault:sandboxes", "fault:containers", "fault:disk", "fault:status",
		"fault:stuck", "fault:hang", "fault:not found", invalidCapacity,
	}
}
