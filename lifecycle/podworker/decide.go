package podworker

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// state is what decisions about a pod are made from. It is a value: decide,
// orphan and advance take one and return the next.
type state struct {
	pod     *corev1.Pod      // nil while only the runtime knows the pod
	running *podcache.Status // the pod as the runtime showed it to who killed it
	grace   time.Duration    // 0 before the pod is terminating
	// statusFn and waiters came with kills: the last function, and who waits for
	// the end.
	statusFn func(*corev1.PodStatus)
	waiters  []chan<- error

	phase Phase
	// why is the type of the turn that is wanted, or was last.
	why    UpdateType
	wanted bool // a turn is to begin as soon as none is under way
	// started says that a turn has begun, stopping that a terminating one has.
	started, stopping bool
	// deleted says that the pod is not wanted any more, evicted that it was
	// evicted, restart that it was asked for again while it ended, and inRuntime
	// that the runtime showed it when it was killed.
	deleted, evicted, restart, inRuntime bool
}

// facts are what a decision needs to know beside the state.
type facts struct {
	known  bool // the pod was known before
	runs   bool // the runtime shows something of the pod that may run
	behind bool // a static pod that waits for another of its name
}

// effects are what follows from a decision beside the next state.
type effects struct {
	// ignored is why the update was not taken; the state may still differ.
	ignored string
	// report is who must be told that the pod has ended.
	report []chan<- error
	// cancel says that the turn under way is not worth finishing.
	cancel bool
}

// decide takes an update, after the kubelet's list: what ends a pod ends it for
// good, a pod that ends is not created again under the same UID before it was
// forgotten, and everything after the end changes nothing.
func decide(s state, u Update, w chan<- error, f facts) (state, effects) {
	if reason := malformed(u); reason != "" {
		return s, effects{ignored: reason, report: one(w)}
	}
	if !f.known && u.Type == Sync {
		return s, effects{ignored: "nobody has created the pod", report: one(w)}
	}
	runtimeOnly := u.Pod == nil
	if !f.known && !runtimeOnly && podspec.IsTerminal(u.Pod.Status.Phase) && !f.runs {
		// It ended before this agent began; all that is left is to clean up.
		s.phase, s.stopping = Terminated, true
	}
	if runtimeOnly || u.Type == Kill && f.runs {
		s.inRuntime = true
	}
	if f.known && s.phase >= Terminating && u.Type == Create {
		s.restart = true
		return s, effects{ignored: "the pod is ending; it can start again once it was forgotten", report: one(w)}
	}
	if s.phase == Finished || s.phase == Terminated && runtimeOnly {
		return s, effects{ignored: "the pod has ended", report: one(w)}
	}
	if runtimeOnly {
		s.running = u.Running
	} else {
		s.pod = u.Pod
	}
	s.why, s.wanted = u.Type, true
	s, e := end(s, u, w)
	if s.phase == Terminating && f.behind && !s.started && !f.runs && s.statusFn == nil {
		// It never was anything but a place in a queue, and has no status to get.
		s.phase, s.wanted, s.stopping = Finished, false, true
		e.report, s.waiters = append(e.report, s.waiters...), nil
	}
	return s, e
}

// malformed says what is wrong with an update on its own, if anything.
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

// end makes the pod end if the update says so.
func end(s state, u Update, w chan<- error) (state, effects) {
	s.deleted = s.deleted || u.Pod == nil || u.Pod.DeletionTimestamp != nil
	s.evicted = s.evicted || u.Type == Kill && u.Kill.Evict
	became := false
	if s.phase == Syncing && (s.deleted || u.Type == Kill || podspec.IsTerminal(u.Pod.Status.Phase)) {
		s.phase, became = Terminating, true
	}
	if s.phase != Terminating {
		return s, effects{report: one(w)} // nothing to wait for: nothing runs, or nothing ends
	}
	var kill KillOptions
	if u.Type == Kill {
		kill = u.Kill
	}
	if kill.StatusFn != nil {
		s.statusFn = kill.StatusFn
	}
	s.waiters = append(s.waiters, one(w)...)
	before := s.grace
	s.grace = grace(before, s.pod, kill.Grace)
	return s, effects{cancel: became || s.grace < before}
}

// one returns w as a list, which is empty if there is nobody.
func one(w chan<- error) []chan<- error {
	if w == nil {
		return nil
	}
	return []chan<- error{w}
}

// lastGrace is what a pod without a spec, and any pod at the least, gets.
const lastGrace = time.Second

// grace returns what the pod may take to end: at most what it was before, unless
// that is 0, and less if its deletion or override say so. The spec counts only
// when nothing else does, and 30 s when it says nothing, as the API server would
// have filled in. The result is in whole seconds, at least one, as in the
// kubelet.
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
	return max(g.Truncate(time.Second), lastGrace)
}

// orphaned takes the news that nobody wants the pod, which ends it. A pod that
// is ending already gets one more try now.
func orphaned(s state) state {
	s.deleted = true
	if s.phase == Syncing {
		s.phase, s.grace = Terminating, grace(0, s.pod, nil)
	}
	if s.phase != Finished {
		s.wanted = true
	}
	return s
}

// verdict is how a turn ended.
type verdict struct {
	phase    Phase // which the pod was in when the turn began
	terminal bool  // SyncPod says that the pod has run to completion
	err      error
}

// advance moves a pod on after a turn. Moved says that it is in another phase
// now, and report whom to tell that nothing of it runs. A pod that has moved on
// while the turn was under way stays where it is.
func advance(s state, v verdict) (next state, moved bool, report []chan<- error) {
	if s.phase != v.phase || v.err != nil {
		return s, false, nil
	}
	switch s.phase {
	case Syncing:
		if !v.terminal {
			return s, false, nil
		}
		s.phase, s.grace, s.wanted = Terminating, grace(0, s.pod, nil), true
		return s, true, nil
	case Terminating:
		s.phase, s.wanted = Terminated, true
		if s.pod == nil { // there is nothing to clean up after it
			s.phase, s.wanted = Finished, false
		}
		report, s.waiters = s.waiters, nil
		return s, true, report
	case Terminated:
		s.phase, s.wanted = Finished, false
		return s, true, nil
	default:
		return s, false, nil
	}
}
