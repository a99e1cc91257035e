package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// recorder records all events in the log of /agent/events, and prints warnings on the console.
type recorder struct {
	events  *eventlog.Log
	console *console
}

// AnnotatedEventf implements agent.EventRecorder.
func (r recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	about, ok := object.(*corev1.ObjectReference)
	if !ok {
		return
	}
	if reason == podrunner.MissingClusterDNS {
		kind = corev1.EventTypeNormal // a node without a cluster needs no cluster DNS
	}
	message := fmt.Sprintf(format, args...)
	r.events.AnnotatedEventf(about, annotations, kind, reason, "%s", message)
	if kind == corev1.EventTypeWarning {
		r.console.event(about, reason, message)
	}
}
