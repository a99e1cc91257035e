package main

import (
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/eventlog"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// recorder shows events about pods and the node where others send them to an API
// server: warnings on the console, all in the ring that /events shows, and in the log
// for who asks for details.
type recorder struct {
	log     *slog.Logger
	console *console
	ring    *eventlog.Log
}

// Eventf shows an event. That no cluster has a DNS here is no warning: none is needed.
func (r recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	about := reference(object)
	if about == nil {
		return
	}
	if reason == podrunner.MissingClusterDNS {
		kind = corev1.EventTypeNormal
	}
	message := fmt.Sprintf(format, args...)
	r.ring.Add(api.Event{
		Type: kind, Reason: reason, Message: message,
		Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, FieldPath: about.FieldPath,
	})
	if kind == corev1.EventTypeWarning {
		r.console.event(about, reason, message)
	}
	r.log.Debug("event", "kind", about.Kind, "namespace", about.Namespace, "name", about.Name,
		"field", about.FieldPath, "type", kind, "reason", reason, "message", message)
}

// reference is what an event is about, nil if that is nothing that is shown here.
func reference(object runtime.Object) *corev1.ObjectReference {
	switch o := object.(type) {
	case *corev1.ObjectReference:
		return o
	case *corev1.Pod:
		return &corev1.ObjectReference{Kind: "Pod", Namespace: o.Namespace, Name: o.Name}
	case *corev1.Node:
		return &corev1.ObjectReference{Kind: "Node", Name: o.Name}
	default:
		return nil
	}
}

// event prints an event.
func (c *console) event(about *corev1.ObjectReference, reason, message string) {
	if about.FieldPath != "" {
		reason += " " + about.FieldPath
	}
	text := reason + ": " + message
	if about.Kind == "Node" {
		c.node(about.Name, text)
		return
	}
	c.line(about.Namespace, about.Name, text)
}

// reference is the node that events are about.
func (a *agent) reference() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.opts.nodeName}}
}
