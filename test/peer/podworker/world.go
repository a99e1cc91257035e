package podworker

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is the options of a node, and the shutdowns of its machine.
type world struct {
	Config podworker.ShutdownConfig
	// Allowed is how long logind waits for the holder of a lock. Overridden is how long it
	// waits after a side has requested a longer time.
	Allowed, Overridden time.Duration
	Shutdowns           []shutdown

	// scale multiplies all durations, to observe how a kubelet without fractions of seconds
	// would behave with them.
	scale     time.Duration
	predicted map[int][]judge.Prediction
}

// A shutdown is a shutdown of the machine.
type shutdown struct {
	After time.Duration // since the previous one
	Pods  []*pod
	// Cancelled is the time from the beginning of the shutdown to its cancellation; 0 means
	// never.
	Cancelled time.Duration
	// Volumes is the duration of unmounting the volumes of all pods in a stage. VolumesFail
	// is set if it fails.
	Volumes     time.Duration
	VolumesFail bool
}

// hangs is the termination time of a pod that does not end even if it is killed.
const hangs = time.Hour

// A pod is a pod on the node when the machine shuts down.
type pod struct {
	*corev1.Pod

	Ends  time.Duration // duration of its termination
	Fails bool          // the termination fails after Ends
}

func drawWorld(d *judge.Draw) *world {
	w := &world{Config: drawConfig(d), scale: 1}
	if d.Chance(20) { // both sides reject invalid options
		w.Config = drawBadConfig(d, w.Config)
		return w
	}
	w.Overridden = w.Config.Total()
	w.Allowed = judge.Pick(d, time.Hour, 5*time.Second)
	if d.Chance(10) {
		w.Overridden = judge.Pick(d, time.Second, 5*time.Second, 12*time.Second, 0)
	}
	for i := range d.Between(1, 3) {
		w.Shutdowns = append(w.Shutdowns, drawShutdown(d, i, w.Config))
		if w.Shutdowns[i].Cancelled == 0 { // the machine is off afterwards
			break
		}
	}
	return w
}

func drawConfig(d *judge.Draw) (c podworker.ShutdownConfig) {
	if d.Chance(50) {
		c.ShutdownGracePeriod = judge.Pick(d, 20*time.Second, 30*time.Second, time.Second, time.Minute, 10500*time.Millisecond, 0)
		c.ShutdownGracePeriodCriticalPods = min(c.ShutdownGracePeriod, judge.Pick(d, 10*time.Second, 0, time.Second, 3200*time.Millisecond, time.Minute))
		return c
	}
	priorities := []int32{0, 1000, -5, 100000, podworker.CriticalPriority, podworker.CriticalPriority + 5000}
	judge.Shuffle(d, priorities)
	for _, p := range priorities[:d.Between(1, 5)] {
		c.ShutdownGracePeriodByPodPriority = append(c.ShutdownGracePeriodByPodPriority, podworker.ShutdownGracePeriodByPodPriority{
			Priority: p, GracePeriod: time.Duration(judge.Pick(d, 10, 5, 1, 30, 0)) * time.Second,
		})
	}
	return c
}

// drawBadConfig draws options that may contradict each other.
func drawBadConfig(d *judge.Draw, c podworker.ShutdownConfig) podworker.ShutdownConfig {
	odd := func() time.Duration {
		return judge.Pick(d, 0, time.Second, 10*time.Second, 999*time.Millisecond, -time.Second, -time.Nanosecond)
	}
	if d.Chance(40) {
		c.ShutdownGracePeriod = odd()
	}
	if d.Chance(40) {
		c.ShutdownGracePeriodCriticalPods = odd()
	}
	if n := len(c.ShutdownGracePeriodByPodPriority); n > 0 && d.Chance(30) {
		last := &c.ShutdownGracePeriodByPodPriority[n-1]
		if d.Chance(50) {
			last.GracePeriod = -time.Second
		} else {
			last.Priority = c.ShutdownGracePeriodByPodPriority[0].Priority
		}
	}
	return c
}

func drawShutdown(d *judge.Draw, n int, c podworker.ShutdownConfig) shutdown {
	s := shutdown{
		After:       judge.Pick(d, time.Second, time.Minute, time.Hour),
		Volumes:     judge.Pick(d, 0, 0, 750*time.Millisecond, 6350*time.Millisecond, hangs),
		VolumesFail: d.Chance(15),
	}
	for i := range d.Between(0, 6) {
		s.Pods = append(s.Pods, drawPod(d, fmt.Sprintf("p%d-%d", n, i), c))
	}
	if d.Chance(40) {
		s.Cancelled = judge.Pick(d, 2170*time.Millisecond, 12170*time.Millisecond, 40170*time.Millisecond)
	}
	return s
}

func drawPod(d *judge.Draw, name string, c podworker.ShutdownConfig) *pod {
	p := &pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}}
	p.Generation = int64(d.Int(4))
	p.Spec.Priority = judge.Maybe(d, 80, func() int32 {
		some := []int32{0, 1, 999, -6, 1000, 1001, podworker.CriticalPriority - 1, podworker.CriticalPriority, podworker.CriticalPriority + 1000, 1<<31 - 1}
		for _, b := range c.ShutdownGracePeriodByPodPriority {
			some = append(some, b.Priority, b.Priority+1, b.Priority-1)
		}
		return judge.Pick(d, some...)
	})
	p.Spec.TerminationGracePeriodSeconds = judge.Maybe(d, 80, func() int64 { return judge.Pick(d, int64(30), 0, 1, 5, 9, 10, 11, 7200, 1<<40) })
	p.Ends = judge.Pick(d, 20*time.Millisecond, 300*time.Millisecond, 1100*time.Millisecond, 4900*time.Millisecond, 9400*time.Millisecond, 14800*time.Millisecond, hangs)
	p.Fails = d.Chance(10)
	p.Status = drawStatus(d)
	return p
}

func drawStatus(d *judge.Draw) (s corev1.PodStatus) {
	s.Phase = judge.Pick(d, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed)
	for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.DisruptionTarget} {
		if d.Chance(30) {
			s.Conditions = append(s.Conditions, corev1.PodCondition{
				Type: t, Status: judge.Pick(d, corev1.ConditionTrue, corev1.ConditionFalse), ObservedGeneration: int64(d.Int(3)),
				LastTransitionTime: metav1.NewTime(time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)), Reason: judge.Pick(d, "Old", corev1.PodReasonTerminationByKubelet),
				Message: judge.Pick(d, "old", podworker.MessageTerminated),
			})
		}
	}
	if d.Chance(50) {
		slices.Reverse(s.Conditions)
	}
	return s
}

// pods returns the pods of a shutdown for a manager.
func (s shutdown) pods() (all []*corev1.Pod) {
	for _, p := range s.Pods {
		all = append(all, p.Pod)
	}
	return all
}

func (s shutdown) pod(name string) *pod {
	return s.Pods[slices.IndexFunc(s.Pods, func(p *pod) bool { return p.Name == name })]
}
