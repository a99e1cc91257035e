package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/internal/printable"
	"github.com/kubeparts/kubeparts/status"
)

const hostile = "x\n12:00:00.000 ns/forged Running\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"

func TestConsole_HostileTextForgesNoLine(t *testing.T) {
	t.Parallel()
	pod := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{}
		p.Namespace, p.Name = "ns", "p"
		edit(p)
		return p
	}
	changed := func(edit func(*corev1.PodStatus)) func(*console) {
		return func(c *console) {
			change := status.Change{Pod: pod(func(*corev1.Pod) {}), New: corev1.PodStatus{Phase: corev1.PodRunning}}
			edit(&change.New)
			c.changed(change)
		}
	}
	ended := func(name, reason string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: name, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: hostile},
			}}}
		}
	}
	event := func(edit func(*corev1.Pod), reason, message string) func(*console) {
		return func(c *console) {
			r := recorder{events: eventlog.New(eventlog.Config{}), console: c}
			p := pod(edit)
			about := &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
			r.AnnotatedEventf(about, nil, corev1.EventTypeWarning, reason, "%s", message)
		}
	}
	for place, show := range map[string]func(*console){
		"phase":     changed(func(s *corev1.PodStatus) { s.Phase = hostile }),
		"address":   changed(func(s *corev1.PodStatus) { s.PodIP = hostile }),
		"reason":    changed(func(s *corev1.PodStatus) { s.Reason = hostile }),
		"message":   changed(func(s *corev1.PodStatus) { s.Message = hostile }),
		"container": changed(ended(hostile, "Error")),
		"end":       changed(ended("c", hostile)),
		"wait":      changed(func(s *corev1.PodStatus) { s.InitContainerStatuses = waiting("c", hostile) }),
		"gone": func(c *console) {
			c.removed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: hostile, UID: hostile}})
		},
		"event":          event(func(*corev1.Pod) {}, "Failed", hostile),
		"event's reason": event(func(*corev1.Pod) {}, hostile, "m"),
		"event's pod":    event(func(p *corev1.Pod) { p.Name = hostile }, "Failed", "m"),
		"field path": func(c *console) {
			c.event(&corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p", FieldPath: hostile}, "Failed", "m")
		},
		"node":    func(c *console) { c.node(hostile, hostile) },
		"runtime": func(c *console) { c.node("n", fmt.Sprintf("the runtime is not ready: %v", errors.New(hostile))) },
		"agent":   func(c *console) { c.printf("runtime %s %s", hostile, hostile) },
	} {
		var out strings.Builder
		show(&console{out: &out})
		text := out.String()
		require.Equal(t, printable.Lines(text, ""), text, place)
		require.Equal(t, 1, strings.Count(text, "\n"), "%s: %q", place, text)
		require.Regexp(t, `^(\d\d:\d\d:\d\d\.\d{3} (ns/p|ns/x|node |x )|runtime )`, text, place)
		require.NotRegexp(t, `^\S+ ns/forged`, text, place)
	}
}

func waiting(name, reason string) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
}

// TestLog_HostileTextIsQuoted shows that the slog handler of the agent quotes its values.
func TestLog_HostileTextIsQuoted(t *testing.T) {
	t.Parallel()
	for place, log := range map[string]func(*slog.Logger){
		"message": func(l *slog.Logger) { l.Warn(hostile) },
		"value":   func(l *slog.Logger) { l.Warn("m", "k", hostile) },
		"key":     func(l *slog.Logger) { l.Warn("m", hostile, "v") },
		"error":   func(l *slog.Logger) { l.Warn("m", "err", errors.New(hostile)) },
		"joined":  func(l *slog.Logger) { l.Warn("m", "err", errors.Join(errors.New(hostile), io.EOF)) },
		"bytes":   func(l *slog.Logger) { l.Warn("m", "k", []byte(hostile)) },
		"any":     func(l *slog.Logger) { l.Warn("m", "k", []string{hostile}) },
		"group":   func(l *slog.Logger) { l.WithGroup(hostile).Warn("m", "k", "v") },
		"with":    func(l *slog.Logger) { l.With(hostile, hostile).Warn("m") },
		"nested":  func(l *slog.Logger) { l.Warn("m", slog.Group(hostile, slog.String("k", hostile))) },
	} {
		var out strings.Builder
		log(slog.New(slog.NewTextHandler(&out, nil)))
		require.Equal(t, printable.Lines(out.String(), ""), out.String(), place)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), place)
	}
}
