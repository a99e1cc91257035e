package plan

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// playOurs plays a world on our side.
func (k *kubelet) playOurs(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	s, backoff := w.First, newBackoff(t, w.First)
	for _, step := range w.Steps {
		s.begin(t, step, backoff)
		s.without(w.Without)
		actions := backoff.plan(w, s)
		all = append(all, recordOf(s, actions).facts(s))
		if w.Ours {
			s.carryOut(actions, backoff, step.Fails)
			continue
		}
		before := s.clone()
		k.sync(t, s, step.Fails)
		backoff.heed(before, s)
	}
	return all
}

// heed counts the kubelet's starts between two states.
func (b *backoff) heed(before, now *State) {
	for _, st := range now.Starts[len(before.Starts):] {
		if !st.Failed {
			b.Next(podrunner.RestartKey(now.Pod, &st.From), st.Since)
		}
	}
	for _, st := range now.BoxStarts[len(before.BoxStarts):] {
		b.Next(sandboxKey, st.Since)
	}
}

// sandboxKey is the key of the back-off of the pod's sandbox.
const sandboxKey = string(podUID) + "/sandbox"

// A backoff is our restart back-off and its clock.
type backoff struct {
	*lifecycle.Backoff
	clock *testingclock.FakeClock
}

func newBackoff(t *testing.T, s *State) *backoff {
	t.Helper()
	clock := testingclock.NewFakeClock(s.Now)
	b, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Max: s.MaxDelay, Clock: clock})
	require.NoError(t, err)
	return &backoff{Backoff: b, clock: clock}
}

// plan returns our plan for s.
func (b *backoff) plan(w *World, s *State) podrunner.Actions {
	in := podrunner.Input{
		Pod: s.Pod, Status: s.status(), Backoff: b.Until, Restarting: s.Restarting,
		Attempts: func(name string) uint32 { return uint32(s.Logs[name]) },
		Probes:   func(id string) podrunner.ProbeResults { return found(s.container(id)) },
		Resources: podrunner.Resources{
			Container: func(c *corev1.Container) *runtimeapi.LinuxContainerResources { return linuxOf(s.Pod, c) },
			Enforced:  s.enforced,
			PodNow:    s.Cgroup, PodWanted: podCgroup(s.Pod),
		},
	}
	switch w.Without {
	case withoutBackoff:
		in.Backoff = nil
	case withoutProbes:
		in.Probes = nil
	case withoutAttempts:
		in.Attempts = nil
	}
	return podrunner.Plan(in)
}

// enforced returns the last resources of a container: of its instance with the highest restart
// count. If several instances have this count, it uses the newest of them.
func (s *State) enforced(name string) *podrunner.Enforced {
	var c *Container
	for _, other := range s.Containers {
		if other.Name == name && (c == nil || other.Attempt > c.Attempt || other.Attempt == c.Attempt && other.Created.After(c.Created)) {
			c = other
		}
	}
	if c == nil {
		return nil
	}
	return &podrunner.Enforced{ResourceRequirements: c.Has, Linux: linuxOf(&corev1.Pod{}, &corev1.Container{Resources: c.Has})}
}

func found(c *Container) podrunner.ProbeResults {
	return podrunner.ProbeResults{Started: c.Startup == Succeeded, StartupFailed: c.Startup == Failed, LivenessFailed: c.Liveness == Failed}
}

// status returns the status that pleg would produce from s.
func (s *State) status() *podcache.Status {
	status := &podcache.Status{UID: s.Pod.UID, Name: s.Pod.Name, Namespace: s.Pod.Namespace, SandboxOf: map[string]string{}}
	for _, b := range s.Boxes {
		status.Sandboxes = append(status.Sandboxes, s.boxStatus(b))
	}
	for _, c := range s.Containers {
		status.Containers = append(status.Containers, s.containerStatus(c, true))
		status.SandboxOf[c.ID] = c.Box
	}
	podcache.SortSandboxes(status.Sandboxes)
	podcache.SortContainers(status.Containers)
	return status
}

// recordOf returns what our plan does upon s.
func recordOf(s *State, a podrunner.Actions) *record {
	r := newRecord()
	r.stopPod, r.restartAll, r.retry = a.StopPod != "", a.RestartAll != nil, a.RetryAt
	r.named(s, a)
	if a.CreateSandbox != "" {
		r.sandbox = attemptText(a.SandboxAttempt)
	}
	for _, k := range a.Kill {
		r.kills[k.ID] = kill{name: k.Name, message: string(k.Reason), grace: grace(s, k)}
	}
	for _, rm := range a.Remove {
		r.removes = append(r.removes, rm.ID)
	}
	for _, st := range a.Start {
		r.starts = append(r.starts, start{name: st.Name, id: st.ID, attempt: st.Attempt})
	}
	for _, u := range a.Update {
		id := u.ID
		if u.Pod {
			id = ""
		}
		r.updates = append(r.updates, update{id: id, res: u.To})
	}
	for name, wait := range a.Waiting {
		if wait.Reason != podrunner.RestartingAllContainers {
			r.waits[name] = wait.Reason + ": " + wait.Message
		}
	}
	return r
}

// named checks that the names in the actions match their IDs.
func (r *record) named(s *State, a podrunner.Actions) {
	check := func(id, name string) {
		is := s.Pod.Name
		if c := s.container(id); c != nil {
			is = c.Name
		}
		if name != is {
			r.misnamed = append(r.misnamed, id)
		}
	}
	for _, k := range a.Kill {
		check(k.ID, k.Name)
	}
	for _, rm := range a.Remove {
		check(rm.ID, rm.Name)
		if rm.Sandbox != (s.container(rm.ID) == nil) {
			r.misnamed = append(r.misnamed, rm.ID)
		}
	}
	if all := a.RestartAll; all != nil && (all.Name == "") != all.After.IsZero() {
		r.misnamed = append(r.misnamed, "who restarts all")
	}
	for _, u := range a.Update {
		check(u.ID, u.Name)
		if u.Pod && u.ID != s.box().ID {
			r.misnamed = append(r.misnamed, u.ID)
		}
	}
}

// grace returns the grace period of a container that is killed, in seconds.
func grace(s *State, k podrunner.Kill) int64 {
	spec, _ := s.spec(k.Name)
	var probe *corev1.Probe
	switch {
	case k.Cause == podrunner.CauseRestartAll:
		return lifecycle.StopSeconds(0)
	case spec != nil && k.Cause == podrunner.CauseLiveness:
		probe = spec.LivenessProbe
	case spec != nil && k.Cause == podrunner.CauseStartup:
		probe = spec.StartupProbe
	}
	return lifecycle.StopSeconds(lifecycle.KillGrace(s.Pod, probe))
}

// carryOut executes our plan on the runtime.
func (s *State) carryOut(a podrunner.Actions, b *backoff, fails []string) {
	s.Restarting = a.Restarting
	n := &node{s: s, fails: fails, log: newRecord()}
	if a.StopPod != "" && !n.stopAll() {
		return
	}
	for _, k := range a.Kill {
		if n.StopContainer(context.Background(), k.ID, 0) != nil {
			return
		}
	}
	for _, rm := range a.Remove {
		if rm.Sandbox {
			s.Boxes = slices.DeleteFunc(s.Boxes, func(b *Box) bool { return b.ID == rm.ID })
		} else if n.RemoveContainer(context.Background(), rm.ID) != nil && a.RestartAll != nil {
			return
		}
	}
	if a.RestartAll != nil {
		if spec, _ := s.spec(a.RestartAll.Name); spec != nil {
			s.count(b, *spec.DeepCopy(), a.RestartAll.After)
		}
		return
	}
	for _, u := range a.Update {
		if u.Pod {
			s.Cgroup = merged(s.Cgroup, u.To)
			s.PodHas = s.Pod.Spec.Resources
			continue
		}
		if n.UpdateContainerResources(context.Background(), u.ID, &runtimeapi.ContainerResources{Linux: u.To}) != nil {
			break
		}
		if c := s.container(u.ID); c != nil {
			spec, _ := s.spec(c.Name)
			is := s.actuated(spec)
			c.Has = corev1.ResourceRequirements{
				Requests: replaced(c.Has.Requests, is.Requests, u.Resource), Limits: replaced(c.Has.Limits, is.Limits, u.Resource),
			}
		}
	}
	n.startAll(a, b)
}

// stopAll stops all sandboxes and containers of the pod.
func (n *node) stopAll() bool {
	for _, c := range n.s.Containers {
		if c.State != exited && c.State != created && n.StopContainer(context.Background(), c.ID, 0) != nil {
			return false
		}
	}
	for _, b := range n.s.Boxes {
		if n.StopPodSandbox(context.Background(), b.ID) != nil {
			return false
		}
	}
	return true
}

func (n *node) startAll(a podrunner.Actions, b *backoff) {
	s := n.s
	if a.CreateSandbox != "" {
		if n.fail("RunPodSandbox") != nil {
			return
		}
		if before := s.box(); before != nil {
			b.Next(sandboxKey, before.Created)
			s.BoxStarts = append(s.BoxStarts, Start{Since: before.Created, At: s.Now})
		}
		s.runSandbox(a.SandboxAttempt)
		s.PodHas = s.Pod.Spec.Resources
	}
	for _, st := range a.Start {
		spec, _ := s.spec(st.Name)
		id := st.ID
		if id == "" {
			if n.fail("CreateContainer "+st.Name) != nil {
				continue
			}
			c := s.create(s.box().ID, st.Name, int(st.Attempt), linuxOf(s.Pod, spec))
			c.Has, id = s.actuated(spec), c.ID
		}
		if !st.After.IsZero() {
			s.count(b, *spec.DeepCopy(), st.After)
		}
		_ = n.StartContainer(context.Background(), id)
	}
}

// count counts a start for the back-off.
func (s *State) count(b *backoff, from corev1.Container, since time.Time) {
	b.Next(podrunner.RestartKey(s.Pod, &from), since)
	s.Starts = append(s.Starts, Start{From: from, Since: since, At: s.Now})
}
