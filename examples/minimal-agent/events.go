package main

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// eventLog writes events about pods to the log: warnings as such, all else for
// who asks for details.
type eventLog struct{ log *slog.Logger }

// Eventf records an event.
func (e eventLog) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	level := slog.LevelDebug
	if kind == corev1.EventTypeWarning {
		level = slog.LevelWarn
	}
	e.log.Log(context.Background(), level, "pod event", "pod", pod.Namespace+"/"+pod.Name, "reason", reason, "message", fmt.Sprintf(format, args...))
}
