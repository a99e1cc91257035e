package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// managerWorld is a history of a few pods, an agent and an API server.
type managerWorld struct {
	Pods  []*corev1.Pod
	Steps []managerStep
}

// What happens in a step of a managerWorld.
const (
	opSet       = "set"       // the agent reports a status
	opReadiness = "readiness" // a readiness probe has a result
	opStartup   = "startup"   // a startup probe has a result
	opTerminate = "terminate" // the pod has ended and nothing is left
	opSync      = "sync"      // the agent sends what is new
	opTick      = "tick"      // the agent sends what is new or differs
	opOthers    = "others"    // others change the pod's object
	opDelete    = "delete"    // the pod is being deleted
	opGone      = "gone"      // the pod's object is deleted at once
	opRestart   = "restart"   // the agent starts again
	opResize    = "resize"    // a resize waits, begins or ends; the agent reports a status
	opOrphans   = "orphans"   // the agent forgets pods that are gone
	opFile      = "file"      // the file of a static pod goes, or comes back
)

type managerStep struct {
	Pause time.Duration
	Op    string
	Pod   int

	Status    corev1.PodStatus // of opSet and opResize
	Sticky    bool             // the status heeds how the pod has ended
	Container string           // of opReadiness and opStartup
	Result    bool
	Others    []corev1.PodCondition
	Phase     corev1.PodPhase // of opOthers
	Lag       bool            // of opOthers: the agent sees the change with its next watch
	MayRun    bool            // of opTick: whether the pod may have running containers
	Resize    string
	Reason    string
	Fail      string // the verb that fails in this step
}

func drawManagerWorld(d *judge.Draw) *managerWorld {
	w := &managerWorld{}
	for i := range d.Between(1, 2) { // either may be static
		pod := drawPod(d)
		pod.UID, pod.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("pod-%d", i)
		if pod.Status.Phase = corev1.PodPending; d.Chance(25) && !isStatic(pod) {
			pod.Status = *drawReport(d, pod)
		}
		w.Pods = append(w.Pods, pod)
	}
	for range d.Between(1, 14) {
		w.Steps = append(w.Steps, drawManagerStep(d, w))
	}
	return w
}

func drawManagerStep(d *judge.Draw, w *managerWorld) managerStep {
	s := managerStep{Pause: time.Duration(d.Between(1, 15)) * time.Second, Pod: d.Int(len(w.Pods))}
	pod := w.Pods[s.Pod]
	s.Op = judge.Pick(d, opSet, opTick, opSync, opSet, opSync, opReadiness, opStartup, opResize, opSet, opTick, opOthers,
		opTerminate, opDelete, opRestart, opSync, opTick, opReadiness, opGone, opOrphans, opOthers)
	if isStatic(pod) { // which is not resized, and ends with its file
		s.Op = cmp.Or(map[string]string{opResize: opSet, opDelete: opFile}[s.Op], s.Op)
	}
	switch s.Op {
	case opSet, opResize:
		s.Status, s.Sticky = *drawReport(d, pod), !d.Chance(3)
		s.Resize = judge.Pick(d, "pending", "begin", "end pending", "end")
		s.Reason = judge.Pick(d, corev1.PodReasonDeferred, corev1.PodReasonInfeasible, corev1.PodReasonError, "")
	case opReadiness, opStartup:
		all := probed(pod)
		s.Container, s.Result = all[d.Int(len(all))].Name, !d.Chance(40)
	case opTick:
		s.MayRun = d.Chance(30)
	case opOthers:
		s.Lag = d.Chance(40)
		for i := range 2 {
			if d.Chance(60) {
				s.Others = append(s.Others, corev1.PodCondition{Type: gate(i), Status: judge.Pick(d, corev1.ConditionTrue, corev1.ConditionFalse)})
			}
		}
		if d.Chance(15) {
			s.Others = append(s.Others, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
		}
		if d.Chance(15) {
			s.Phase = judge.Pick(d, corev1.PodFailed, corev1.PodSucceeded)
		}
	}
	if d.Chance(8) {
		s.Fail = judge.Pick(d, "patch", "delete")
	}
	return s
}

// probed returns the containers that may have probes.
func probed(pod *corev1.Pod) []corev1.Container {
	all := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if podutil.IsRestartableInitContainer(&c) {
			all = append(all, c)
		}
	}
	return all
}

// drawReport returns a status as an agent would report it.
func drawReport(d *judge.Draw, pod *corev1.Pod) *corev1.PodStatus {
	s := drawStatus(d, pod, false)
	s.ObservedGeneration = 0
	if d.Chance(60) { // it is the same as often as not
		s.StartTime = nil
	}
	return &s
}

func (w *managerWorld) String() string { return encode(w) }

func isStatic(pod *corev1.Pod) bool { return pod.Annotations[sourceAnnotation] == "file" }
