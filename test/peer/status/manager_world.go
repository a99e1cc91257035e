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

// The events of a step in a managerWorld.
const (
	opSet       = "set"             // the agent reports a status
	opReadiness = "readiness"       // a readiness probe has a result
	opStartup   = "startup"         // a startup probe has a result
	opTerminate = "terminate"       // the pod has terminated and is cleaned up
	opSync      = "sync"            // the agent sends new statuses
	opTick      = "tick"            // the agent sends new statuses, and those that differ from the API server's
	opOthers    = "other client"    // another client changes the pod's object
	opDelete    = "delete"          // the pod gets a deletion timestamp
	opGone      = "object deleted"  // the pod's object is deleted at once
	opRestart   = "restart"         // the agent restarts
	opResize    = "resize"          // a resize waits, starts or ends; the agent reports a status
	opOrphans   = "remove orphans"  // the agent removes the state of pods that no longer exist
	opFile      = "static pod file" // the file of a static pod is removed, or added again
)

type managerStep struct {
	Pause time.Duration
	Op    string
	Pod   int

	Status    corev1.PodStatus // of opSet and opResize
	Sticky    bool             // the status respects an earlier termination of the pod
	Container string           // of opReadiness and opStartup
	Result    bool
	Others    []corev1.PodCondition
	Phase     corev1.PodPhase // of opOthers
	Lag       bool            // for opOthers: the agent receives the change with its next watch event
	MayRun    bool            // of opTick: whether the pod may have running containers
	Resize    string
	Reason    string
	Fail      string // the verb that fails in this step
}

func drawManagerWorld(d *judge.Draw) *managerWorld {
	w := &managerWorld{}
	for i := range d.Between(1, 2) { // each may be static
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
	if isStatic(pod) { // a static pod is not resized, and terminates when its file is removed
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
	if d.Chance(60) { // it is often unchanged
		s.StartTime = nil
	}
	return &s
}

func (w *managerWorld) String() string { return encode(w) }

func isStatic(pod *corev1.Pod) bool { return pod.Annotations[sourceAnnotation] == "file" }
