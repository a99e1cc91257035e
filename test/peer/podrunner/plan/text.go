package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// String describes the world: the pod, the input of each plan, and the events before each.
func (w *World) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if w.Ours {
		line("our plans are carried out")
	}
	if w.Without != "" {
		line("nobody keeps %s", w.Without)
	}
	for i, step := range w.Steps {
		line("step %d, after %s: %v fails %v", i, step.After, step.Events, step.Fails)
		if i < len(w.seen) {
			b.WriteString(w.seen[i].text(i == 0))
		}
	}
	return b.String()
}

func (s *State) text(whole bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if whole {
		spec, _ := yaml.Marshal(s.Pod.Spec)
		line("  %s", strings.ReplaceAll(strings.TrimSpace(string(spec)), "\n", "\n  "))
	}
	line("    restarting %t, logs %v, cgroup %s", s.Restarting, s.Logs, linuxText(s.Cgroup))
	for _, x := range s.Boxes {
		line("    sandbox %s attempt %d ready %t host %t linux %t network %t ip %q", x.ID, x.Attempt, x.Ready, x.Host, !x.NoLinux, x.Network, x.IP)
	}
	for _, c := range s.Containers {
		line("    container %s in %s attempt %d %s code %d %s %q made %s ago, ended %s ago, image %s dir %q hash %d startup %d liveness %d has %s given %s",
			c.ID, c.Box, c.Attempt, c.State, c.Code, c.Reason, c.Message, s.Now.Sub(c.Created).Round(time.Second), age(s.Now, c.Finished),
			c.From.Image, c.From.WorkingDir, c.Hash, c.Startup, c.Liveness, linuxText(c.Linux), resourcesText(c.Has))
	}
	for _, st := range s.Starts {
		line("    started %s %s ago after %s ago", st.From.Name, s.Now.Sub(st.At), age(s.Now, st.Since))
	}
	return b.String()
}

func age(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return now.Sub(t).Round(time.Second).String()
}

func linuxText(l *runtimeapi.LinuxContainerResources) string {
	if l == nil {
		return "nothing"
	}
	return fmt.Sprintf("memory %d shares %d quota %d", l.MemoryLimitInBytes, l.CpuShares, l.CpuQuota)
}

func resourcesText(r corev1.ResourceRequirements) string {
	return fmt.Sprintf("requests %s/%s limits %s/%s", r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory())
}

func attemptText(n uint32) string { return fmt.Sprintf("attempt %d", n) }
