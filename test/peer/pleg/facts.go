package pleg

import (
	"fmt"
	"maps"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A view is a pod's status on either side. Sandboxes and containers are sorted newest first.
type view struct {
	uid        string
	name       string // namespace and name
	ips        []string
	sandboxes  []sandboxView
	containers []containerView
	err        error
	stale      bool
	runs       bool // it is running or its state is unknown
}

type sandboxView struct{ id, text string }

type containerView struct {
	id, name string
	restarts int
	text     string
	active   bool // it belongs to the newest sandbox, which is ready
}

// facts adds what a status shows to the facts of a pod.
func (v view) facts(f judge.Facts, pod string) {
	set := func(name, value string) { f["pod "+pod+"/"+name] = value }
	set("uid", v.uid)
	set("name", v.name)
	set("addresses", strings.Join(v.ips, " "))
	if v.err != nil {
		set("error", v.err.Error())
	}
	if v.stale {
		set("stale", "yes")
	}
	if v.runs {
		set("runs", "yes")
	}
	var ids []string
	for _, b := range v.sandboxes {
		ids = append(ids, b.id)
		set("sandbox "+b.id, b.text)
	}
	set("sandboxes", strings.Join(ids, " "))
	named := map[string][]string{}
	for _, c := range v.containers {
		named[c.name] = append(named[c.name], c.id)
		set("container "+c.id, c.text)
		set("container "+c.id+"/name", c.name)
		set("container "+c.id+"/restarts", fmt.Sprint(c.restarts))
		if active := "active " + c.name; c.active && f["pod "+pod+"/"+active] == "" {
			set(active, c.id)
		}
	}
	for name, ids := range named {
		set("containers "+name, strings.Join(ids, " "))
	}
}

// An event is a pod lifecycle event of either side.
type event struct{ pod, kind, id string }

// addEvents adds events to the facts: those of each object in order, and the requests to sync
// a pod.
func addEvents(f judge.Facts, events []event) {
	for _, e := range events {
		name := "pod " + e.pod + "/events of " + e.id
		if e.id == "" {
			name = "pod " + e.pod + "/events of itself"
		}
		f[name] = strings.TrimPrefix(f[name]+" "+e.kind, " ")
	}
}

// received reports, as text, whether a waiter received the cached status.
func received(pod string, got, has view) string {
	facts := func(v view) judge.Facts {
		f := judge.Facts{}
		v.facts(f, pod)
		return f
	}
	if g := facts(got); !maps.Equal(g, facts(has)) {
		return fmt.Sprint("received another status than Get returns: ", g)
	}
	return "received the status"
}
