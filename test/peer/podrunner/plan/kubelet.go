package plan

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// play plays a world on the kubelet's side.
func (k *kubelet) play(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	w.plan = func(s *State) judge.Facts { return k.facts(t, s) }
	s, backoff := w.First, newBackoff(t, w.First)
	for _, step := range w.Steps {
		s.begin(t, step, backoff)
		s.without(w.Without)
		w.seen = append(w.seen, s.clone())
		tried := s.clone()
		facts := k.sync(t, tried, nil).facts(s)
		all = append(all, facts)
		w.did = append(w.did, facts)
		switch {
		case w.Ours:
			s.carryOut(backoff.plan(w, s), backoff, step.Fails)
		case len(step.Fails) > 0:
			k.sync(t, s, step.Fails)
		default:
			s = tried
		}
	}
	return all
}

// begin applies the events at the beginning of a step.
func (s *State) begin(t *testing.T, step Step, b *backoff) {
	t.Helper()
	s.Now = s.Now.Add(step.After)
	for _, e := range step.Events {
		s.apply(e)
		if e.What == "agent restarts" {
			*b = *newBackoff(t, s)
		}
	}
	b.clock.SetTime(s.Now)
}

// without removes the records that the world lacks.
func (s *State) without(what string) {
	switch what {
	case withoutBackoff:
		s.Starts, s.BoxStarts = nil, nil
	case withoutProbes:
		for _, c := range s.Containers {
			c.Startup, c.Liveness = Succeeded, Succeeded
		}
	case withoutAttempts:
		s.Logs = map[string]int{}
	}
}

// facts returns the kubelet's actions for s, which is not modified.
func (k *kubelet) facts(t *testing.T, s *State) judge.Facts {
	t.Helper()
	return k.sync(t, s.clone(), nil).facts(s)
}

// sync runs the kubelet's SyncPod for the pod. It modifies s.
func (k *kubelet) sync(t *testing.T, s *State, fails []string) *record {
	t.Helper()
	before := s.clone()
	log := k.use(t, s, fails)
	found, err := k.GetPod(k.ctx, s.Pod.UID)
	if errors.Is(err, container.ErrPodNotFound) {
		found, err = &container.Pod{ID: s.Pod.UID, Name: s.Pod.Name, Namespace: s.Pod.Namespace}, nil
	}
	require.NoError(t, err)
	status, err := k.GetPodStatus(k.ctx, found)
	require.NoError(t, err)
	s.Restarting = s.restarting(status)
	result := k.SyncPod(k.ctx, s.Pod.DeepCopy(), status, nil, s.kubeletBackoff(), s.Restarting)
	for _, r := range result.SyncResults {
		if errors.Is(r.Error, container.ErrCrashLoopBackOff) || r.Action == container.StartContainer && waits(r.Error) {
			log.waits[r.Target.(string)] = lifecycle.CrashLoopBackOff + ": " + r.Message
		}
	}
	log.retry, _ = container.MinBackoffExpiration(result.Error())
	for _, x := range log.kills {
		if x.message == lifecycle.StoppingMessage(x.name) {
			log.stopPod = true
		}
	}
	log.restartAll = s.Restarting && !log.stopPod && log.sandbox == ""
	s.recall(k, before, log)
	return log
}

func waits(err error) bool {
	_, waiting := container.MinBackoffExpiration(err)
	return waiting
}

// restarting reports whether the kubelet restarts all containers: its status
// manager decides that before each sync.
func (s *State) restarting(status *container.PodStatus) bool {
	old := &corev1.PodStatus{}
	if s.Restarting {
		old.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	}
	return !s.notRestarting && container.ShouldAllContainersRestart(s.Pod, status, old) && !container.AllContainersRestartCleanedUp(s.Pod, status)
}

// kubeletBackoff returns the kubelet's back-off after the starts recorded in s. The kubelet
// deletes old entries every two seconds.
func (s *State) kubeletBackoff() *flowcontrol.Backoff {
	clock := testingclock.NewFakeClock(s.Now)
	initial, longest := s.delays()
	b := flowcontrol.NewFakeBackOff(initial, longest, clock)
	for i, st := range s.Starts {
		clock.SetTime(st.At)
		key := kuberuntime.GetBackoffKey(s.Pod, &st.From)
		s.housekeeping(b, st.At, key, st.Since, s.Starts[:i])
		b.Next(key, st.Since)
	}
	clock.SetTime(s.Now)
	for _, st := range s.Starts {
		s.housekeeping(b, s.Now, kuberuntime.GetBackoffKey(s.Pod, &st.From), s.since(st.From.Name), s.Starts)
	}
	return b
}

// recall updates s with the kubelet's state that persists between syncs.
func (s *State) recall(k *kubelet, before *State, log *record) {
	for _, st := range log.starts {
		spec, _ := s.spec(st.name)
		if last := before.ended(st.name); last != nil {
			s.Starts = append(s.Starts, Start{
				From: *spec.DeepCopy(), Since: last.Finished, At: s.Now, Failed: slices.Contains(log.failures, "CreateContainer "+st.name),
			})
		}
	}
	for _, c := range s.Containers {
		if s.newest(c.Name) == c {
			c.Has, _ = k.actuated.GetContainerResources(s.Pod.UID, c.Name)
		}
	}
	if was, is := before.box(), s.box(); was != nil && is.ID != was.ID {
		s.BoxStarts = append(s.BoxStarts, Start{Since: was.Created, At: s.Now})
	}
	if log.sandbox != "" {
		s.PodHas = s.Pod.Spec.Resources
	}
	if has, found := k.actuated.GetPodLevelResources(s.Pod.UID); found && log.sandbox == "" {
		s.PodHas = has
	}
}
