package main

import (
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// recorder shows events about pods and the node where others send them to an API
// server: in the log, and on the console.
type recorder struct {
	log     *slog.Logger
	console *console
}

// Eventf shows an event.
func (r recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	say := r.log.Info
	if kind == corev1.EventTypeWarning {
		say = r.log.Warn
	}
	switch o := object.(type) {
	case *corev1.Pod:
		say("event", "pod", o.Namespace+"/"+o.Name, "podUID", o.UID, "reason", reason, "message", message)
		r.console.line(o.Namespace, o.Name, reason+": "+message)
	case *corev1.Node:
		say("event", "node", o.Name, "reason", reason, "message", message)
		r.console.node(o.Name, reason+": "+message)
	}
}

// node prints something about the node.
func (c *console) node(name, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, "%s node %s %s\n", time.Now().Format("15:04:05.000"), name, text)
}

func (a *agent) recorder() recorder { return recorder{log: a.log, console: a.console} }

// reference is the node that events are about.
func (a *agent) reference() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.opts.nodeName}}
}
