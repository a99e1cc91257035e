package prober_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/prober"
)

// story is a manager with one pod, which a script changes.
type story struct {
	*prober.Manager
	*node
	t     *testing.T
	clock *testingclock.FakeClock
	pod   *corev1.Pod
}

// The scripts in testdata run probes by hand, with the fake clock. The map below
// contains their commands.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		t.Helper()
		s := &story{node: newTestNode(), t: t, clock: testingclock.NewFakeClock(epoch), pod: podOf()}
		s.Manager = manager(t, s.node, s.clock)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			command := s.commands()[d.Cmd]
			require.NotNil(t, command, "%s: unknown command", d.Pos)
			return command(d)
		})
	})
}

func (s *story) commands() map[string]func(*datadriven.TestData) string {
	return map[string]func(*datadriven.TestData) string{
		"container": s.container, // NAME [sidecar] [KIND=success/failure/delay ...]
		"policy": func(d *datadriven.TestData) string {
			s.pod.Spec.RestartPolicy = corev1.RestartPolicy(first(d))
			return ""
		},
		"runs":    s.target(prober.Running), // NAME ID [old] [started]
		"waits":   s.target(prober.Waiting),
		"exited":  s.target(prober.Exited),
		"answers": func(d *datadriven.TestData) string { n, _ := strconv.Atoi(first(d)); s.exits(int32(n)); return "" },
		"advance": func(d *datadriven.TestData) string {
			by, err := time.ParseDuration(first(d))
			require.NoError(s.t, err)
			s.clock.Step(by)
			return ""
		},
		"sync":    func(*datadriven.TestData) string { s.AddPod(s.pod.DeepCopy()); return "" },
		"refresh": func(*datadriven.TestData) string { s.Refresh(s.pod.UID); return s.results() },
		"stop":    func(*datadriven.TestData) string { s.StopLivenessAndStartup(s.pod.UID); return s.results() },
		"remove":  func(*datadriven.TestData) string { s.RemovePod(s.pod.UID); return s.results() },
		"probe":   s.step, // KIND, of all containers
		"results": func(*datadriven.TestData) string { return s.results() },
		"events":  s.told,
	}
}

func first(d *datadriven.TestData) string { return d.CmdArgs[0].Key }

func (s *story) container(d *datadriven.TestData) string {
	c, init := corev1.Container{Name: first(d)}, false
	for _, arg := range d.CmdArgs[1:] {
		if arg.Key == "sidecar" {
			c, init = sidecar(c), true
			continue
		}
		p := probeOf()
		if len(arg.Vals) > 0 {
			_, err := fmt.Sscanf(arg.Vals[0], "%d/%d/%d", &p.SuccessThreshold, &p.FailureThreshold, &p.InitialDelaySeconds)
			require.NoError(s.t, err)
		}
		set(&c, kindOf(arg.Key), p)
	}
	if init {
		s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, c)
	} else {
		s.pod.Spec.Containers = append(s.pod.Spec.Containers, c)
	}
	return ""
}

func kindOf(word string) prober.Kind {
	return map[string]prober.Kind{"startup": prober.Startup, "readiness": prober.Readiness, "liveness": prober.Liveness}[word]
}

func (s *story) target(state prober.State) func(*datadriven.TestData) string {
	return func(d *datadriven.TestData) string {
		t := prober.Target{State: state, StartedAt: s.clock.Now(), ID: d.CmdArgs[1].Key}
		for _, arg := range d.CmdArgs[2:] {
			switch arg.Key {
			case "old":
				t.StartedAt = epoch.Add(-time.Hour)
			case "started":
				t.Started = true
			case "ended":
				t.Ended = true
			}
		}
		s.set(first(d), t)
		return ""
	}
}

// each calls f for each container.
func (s *story) each(f func(c corev1.Container)) {
	for _, c := range s.pod.Spec.InitContainers {
		f(c)
	}
	for _, c := range s.pod.Spec.Containers {
		f(c)
	}
}

func (s *story) step(d *datadriven.TestData) string {
	var b strings.Builder
	s.each(func(c corev1.Container) {
		r, err := s.Probe(s.t.Context(), key(c.Name, kindOf(first(d))))
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", c.Name, err)
			return
		}
		fmt.Fprintf(&b, "%s: %s, so %s\n", c.Name, r.Outcome, r.Result)
	})
	return b.String()
}

func (s *story) results() string {
	var b strings.Builder
	s.each(func(c corev1.Container) {
		t, _ := s.lookup("", c.Name)
		fmt.Fprintf(&b, "%s:", c.Name)
		for k := prober.Startup; k <= prober.Liveness; k++ {
			fmt.Fprintf(&b, " %s %s", strings.ToLower(k.String()), s.Result(key(c.Name, k), t.ID))
		}
		fmt.Fprintln(&b)
	})
	return b.String()
}

func (s *story) told(*datadriven.TestData) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.events, "\n")
	s.events = nil
	return all
}
