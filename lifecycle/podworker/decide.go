package podworker

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// state is the input of decisions about a pod. It is a value: applyUpdate,
// orphaned and advance take a state and return the next state.
type state struct {
	pod     *corev1.Pod      // nil while only the runtime knows the pod
	running *podcache.Status // the pod's status in the runtime, from the caller that killed the pod
	grace   time.Duration    // 0 until the pod is terminating
	// statusFn is the status function of the last kill that has a status
	// function. waiters are the channels of callers that wait for the end of
	// the pod.
	statusFn func(*corev1.PodStatus)
	waiters  []chan<- error

	phase Phase
	// why is the type of the next sync: the type of the newest update that no
	// sync has used yet, or else Sync.
	why     UpdateType
	pending bool // a sync is due as soon as no sync is running
	// started: a sync has begun. stopping: a terminating sync has begun, or is
	// not necessary.
	started, stopping bool
	// deleted: the pod is deleted or not desired any more. evicted: it was
	// evicted. restart: it was created again while it was terminating.
	// inRuntime: containers of the pod may have been running when it was
	// killed.
	deleted, evicted, restart, inRuntime bool
}

// facts are what a decision needs in addition to the state.
type facts struct {
	known bool // the pod is known
	runs  bool // containers of the pod may be running
	waits bool // the pod is static and waits for another pod of its name
}

// effects are the consequences of a decision in addition to the next state.
type effects struct {
	// ignored is why the update was ignored; the state may still have changed.
	ignored string
	// report are the channels to notify of the pod's end.
	report []chan<- error
	// cancel reports whether to cancel the running sync.
	cancel bool
}

// applyUpdate applies an update, by the kubelet's rules:
//
//   - A pod that must end never returns to the phase Syncing.
//   - A Create of a pod that is terminating or has ended only sets restart. The
//     pod can be created again under the same UID after it was forgotten.
//   - Any other update of a finished pod has no effect.
func applyUpdate(s state, u Update, w chan<- error, f facts) (state, effects) {
	if reason := malformed(u); reason != "" {
		return s, effects{ignored: reason, report: waiterList(w)}
	}
	if !f.known && u.Type == Sync {
		return s, effects{ignored: "the pod was never created", report: waiterList(w)}
	}
	runtimeOnly := u.Pod == nil
	if !f.known && !runtimeOnly && podspec.IsTerminal(u.Pod.Status.Phase) && !f.runs {
		// The pod ended before this agent started; only the cleanup is left.
		s.phase, s.stopping = Terminated, true
	}
	if runtimeOnly || u.Type == Kill && f.runs {
		s.inRuntime = true
	}
	if f.known && s.phase >= Terminating && u.Type == Create {
		s.restart = true
		return s, effects{ignored: "the pod is terminating; it can be created again after its cleanup", report: waiterList(w)}
	}
	if s.phase == Finished || s.phase == Terminated && runtimeOnly {
		return s, effects{ignored: "the pod has ended", report: waiterList(w)}
	}
	if runtimeOnly {
		s.running = u.Running
	} else {
		s.pod = u.Pod
	}
	s.why, s.pending = u.Type, true
	s, e := terminate(s, u, w)
	if s.phase == Terminating && f.waits && !s.started && !f.runs && s.statusFn == nil {
		// The pod was never started, and there is no status function to call.
		s.phase, s.pending, s.stopping = Finished, false, true
		e.report, s.waiters = append(e.report, s.waiters...), nil
	}
	return s, e
}

// malformed returns what is wrong with the update itself, or "".
func malformed(u Update) string {
	switch {
	case u.Type > Kill:
		return "unknown type"
	case u.Pod == nil && u.Running == nil:
		return "no pod"
	case u.Pod == nil && u.Type != Kill:
		return "a pod that only the runtime knows can only be killed"
	case u.Pod != nil && u.Pod.UID == "", u.Pod == nil && u.Running.UID == "":
		return "no UID"
	default:
		return ""
	}
}

// terminate starts the pod's termination if the update requires it.
func terminate(s state, u Update, w chan<- error) (state, effects) {
	s.deleted = s.deleted || u.Pod == nil || u.Pod.DeletionTimestamp != nil
	s.evicted = s.evicted || u.Type == Kill && u.Kill.Evict
	became := false
	if s.phase == Syncing && (s.deleted || u.Type == Kill || podspec.IsTerminal(u.Pod.Status.Phase)) {
		s.phase, became = Terminating, true
	}
	if s.phase != Terminating {
		return s, effects{report: waiterList(w)} // nothing to wait for: the pod has ended, or the update does not terminate it
	}
	var kill KillOptions
	if u.Type == Kill {
		kill = u.Kill
	}
	if kill.StatusFn != nil {
		s.statusFn = kill.StatusFn
	}
	s.waiters = append(s.waiters, waiterList(w)...)
	before := s.grace
	s.grace = grace(before, s.pod, kill.Grace)
	return s, effects{cancel: became || s.grace < before}
}

// waiterList returns w as a list, which is empty if w is nil.
func waiterList(w chan<- error) []chan<- error {
	if w == nil {
		return nil
	}
	return []chan<- error{w}
}

// minGrace is the minimum grace period. It is also the grace period of a pod
// without a spec.
const minGrace = time.Second

// grace returns the grace period of the pod: the shortest of the previous grace
// period (before, zero if not set), the pod's deletion grace period and the
// override. Periods that are not set do not count. If none of the three is set,
// the result is the spec's grace period. If the spec has no grace period, the
// result is 30 s, the API server's default. The result is in whole seconds, at
// least one, as in the kubelet.
func grace(before time.Duration, pod *corev1.Pod, override *time.Duration) time.Duration {
	g, decided := before, before != 0
	lower := func(d time.Duration) {
		if !decided || d < g {
			g, decided = d, true
		}
	}
	if pod != nil && pod.DeletionGracePeriodSeconds != nil {
		lower(lifecycle.Seconds(*pod.DeletionGracePeriodSeconds))
	}
	if override != nil {
		lower(*override)
	}
	if !decided && pod != nil {
		g = lifecycle.Seconds(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	}
	return max(g.Truncate(time.Second), minGrace)
}

// orphaned terminates a pod that is not desired any more. A pod that is already
// Terminating or Terminated is synced again at once.
func orphaned(s state) state {
	s.deleted = true
	if s.phase == Syncing {
		s.phase, s.grace = Terminating, grace(0, s.pod, nil)
	}
	if s.phase != Finished {
		s.pending = true
	}
	return s
}

// outcome is the outcome of a sync.
type outcome struct {
	phase    Phase // the pod's phase when the sync began
	terminal bool  // SyncPod reported that the pod has run to completion
	err      error
}

// advance returns the state after a sync. moved reports whether the phase has
// changed, and report are the channels to notify that the pod has stopped. If
// the sync failed, or if the phase has changed while the sync was running,
// advance does not change the phase.
func advance(s state, v outcome) (next state, moved bool, report []chan<- error) {
	if s.phase != v.phase || v.err != nil {
		return s, false, nil
	}
	switch s.phase {
	case Syncing:
		if !v.terminal {
			return s, false, nil
		}
		s.phase, s.grace, s.pending = Terminating, grace(0, s.pod, nil), true
		return s, true, nil
	case Terminating:
		s.phase, s.pending = Terminated, true
		if s.pod == nil { // nothing to clean up
			s.phase, s.pending = Finished, false
		}
		report, s.waiters = s.waiters, nil
		return s, true, report
	case Terminated:
		s.phase, s.pending = Finished, false
		return s, true, nil
	default:
		return s, false, nil
	}
}
