package status

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// generatePeer compares the status generated from a runtime's state. Both sides start from
// the kubelet's previous status, so that the differences of each step are independent.
func generatePeer(k *kubeRuntime, files string) judge.Peer[*generateWorld] {
	return judge.Peer[*generateWorld]{
		Name:  "status/generate",
		World: drawGenerateWorld(files),
		Kubelet: func(t *testing.T, w *generateWorld) []judge.Facts {
			t.Helper()
			return playGenerate(t, k, w, false)
		},
		Ours: func(t *testing.T, w *generateWorld) []judge.Facts {
			t.Helper()
			return playGenerate(t, k, w, true)
		},
		Rules:     generateRules(k),
		Scenarios: 600,
	}
}

// playGenerate plays the history with the kubelet. It returns the kubelet's statuses or, if
// ours is set, those that our package generates from the same input.
func playGenerate(t *testing.T, k *kubeRuntime, w *generateWorld, ours bool) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, pod := newAgent(w), w.Pod
		for i := range w.Steps {
			step := &w.Steps[i]
			time.Sleep(step.Pause)
			if step.Restart {
				a = newAgent(w)
			}
			pod = step.change(pod, a)
			turn := generateTurn{Pod: pod.DeepCopy(), Now: time.Now(), Began: a.began}
			turn.Before, turn.Known = a.statuses.GetPodStatus(pod.UID)
			if !turn.Known {
				turn.Before = turn.Pod.Status
			}
			turn.Before = *turn.Before.DeepCopy()
			s := a.turn(k, step, &turn)
			a.statuses.SetPodStatus(klog.Background(), pod.DeepCopy(), s)
			var f judge.Facts
			if ours {
				f = generateOurs(w, step, &turn)
			} else {
				w.Turns = append(w.Turns, turn)
				f = generateFacts(&turn, &s)
			}
			blindFacts(f, w, &turn, s, i%2 == 0, ours)
			all = append(all, f)
			a.report(pod, step, s)
		}
	})
	return all
}

// blindFacts returns the facts while the runtime state is unknown: the previous status. The
// kubelet generates no status then.
func blindFacts(f judge.Facts, w *generateWorld, turn *generateTurn, said corev1.PodStatus, stale, ours bool) {
	s := &said
	if ours {
		in := status.Input{Pod: turn.Pod, RuntimeName: runtimeName, NodeIPs: w.NodeIPs, Previous: *said.DeepCopy(), Now: time.Now()}
		if stale {
			in.Runtime = &podcache.Status{UID: podUID, Name: podName, Namespace: namespace, Stale: true}
		}
		s = new(status.Generate(in))
	}
	all := judge.Facts{}
	statusFacts(all, "blind ", s)
	for name, value := range all {
		_, field, container := strings.Cut(name, "/")
		switch {
		case container && slices.Contains([]string{"state", "last", "restarts", "image", "image ID", "id", "devices"}, field),
			name == "blind pod IPs" && !turn.Pod.Spec.HostNetwork:
			f[name] = value
		case name == "blind condition PodReadyToStartContainers":
			f[name], _, _ = strings.Cut(value, "|")
		}
	}
}

// change returns the pod as the API server has it in this step.
func (s *generateStep) change(pod *corev1.Pod, a *agent) *corev1.Pod {
	pod = pod.DeepCopy()
	if s.Delete && pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = new(metav1.Now())
	}
	if s.Edit {
		pod.Generation++
	}
	if said, ok := a.statuses.GetPodStatus(pod.UID); ok && s.Sync {
		pod.Status = mergePodStatus(pod, pod.Status, *said.DeepCopy(), false)
	}
	kept := pod.Status.Conditions[:0]
	for _, c := range pod.Status.Conditions {
		if c.Type != gate(0) && c.Type != gate(1) {
			kept = append(kept, c)
		}
	}
	pod.Status.Conditions = kept
	for _, c := range s.Foreign {
		if status.Condition(pod.Status.Conditions, c.Type) == nil {
			c.LastTransitionTime = metav1.Now().Rfc3339Copy()
			pod.Status.Conditions = append(pod.Status.Conditions, c)
		}
	}
	if s.APIPhase != "" && !isTerminal(pod.Status.Phase) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = s.APIPhase, "NodeLost", "by a controller"
	}
	return pod
}

func isTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodFailed || phase == corev1.PodSucceeded
}

// turn generates the kubelet's status of a step.
func (a *agent) turn(k *kubeRuntime, step *generateStep, turn *generateTurn) corev1.PodStatus {
	allocated := turn.Pod.DeepCopy()
	for i := range allocated.Spec.Containers {
		allocate(step, &allocated.Spec.Containers[i])
	}
	for i := range allocated.Spec.InitContainers {
		allocate(step, &allocated.Spec.InitContainers[i])
	}
	a.know(allocated, step)
	s := generateAPIPodStatus(a.kubelet, context.Background(), allocated, k.look(step), step.Terminal)
	normalizeStatus(allocated, &s)
	return s
}

// generateFacts returns the kubelet's facts: the generated status, with the times and the
// generation that it gets if the manager accepts it.
func generateFacts(turn *generateTurn, generated *corev1.PodStatus) judge.Facts {
	f, s := judge.Facts{}, generated.DeepCopy()
	if err := checkContainerStateTransition(&turn.Before, s, &turn.Pod.Spec); err != nil {
		f["refused"] = err.Error()
	} else {
		s.StartTime = turn.Before.StartTime
		if s.StartTime.IsZero() {
			s.StartTime = &metav1.Time{Time: turn.Now}
		}
		s.ObservedGeneration = max(turn.Before.ObservedGeneration, turn.Pod.Generation)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if !kubelettypes.PodConditionByKubelet(c.Type) && c.Type != corev1.DisruptionTarget {
			continue
		}
		updateLastTransitionTime(s, &turn.Before, c.Type)
		if was := status.Condition(turn.Before.Conditions, c.Type); was == nil || was.Status != c.Status {
			c.LastTransitionTime = metav1.Time{Time: turn.Now}
		}
	}
	statusFacts(f, "", s)
	return f
}

func allocate(step *generateStep, c *corev1.Container) {
	if r, ok := step.Allocated[c.Name]; ok {
		r.DeepCopyInto(&c.Resources)
	}
}

// report applies the events after a turn: an eviction and the termination.
func (a *agent) report(pod *corev1.Pod, step *generateStep, s corev1.PodStatus) {
	if step.Evict {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		c := status.Condition(s.Conditions, corev1.DisruptionTarget)
		if c == nil {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget})
			c = &s.Conditions[len(s.Conditions)-1]
		}
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "TerminationByKubelet", "The node was low on resource: memory."
		a.statuses.SetPodStatus(klog.Background(), pod.DeepCopy(), s)
	}
	if step.Terminate {
		a.statuses.TerminatePod(klog.Background(), pod.DeepCopy())
	}
}

// generateOurs generates our status of a step.
func generateOurs(w *generateWorld, step *generateStep, turn *generateTurn) judge.Facts {
	in := status.Input{
		Pod: turn.Pod, Runtime: step.observed(), RuntimeName: runtimeName, Terminal: step.Terminal,
		Waiting: step.Waiting, TerminationMessage: podrunner.TerminationMessage, Allocated: step.Allocated, Enforced: step.Actuated, Devices: step.Devices,
		NodeIPs: w.NodeIPs, Probes: step.probes(turn.Pod), Now: time.Now(),
	}
	if turn.Known {
		in.Previous = turn.Before
	}
	s := status.Generate(in)
	f := judge.Facts{}
	if err := status.CheckTransition(turn.Pod, &turn.Before, &s); err != nil {
		f["refused"] = err.Error()
		s.StartTime, s.ObservedGeneration = nil, 0
	}
	statusFacts(f, "", &s)
	return f
}

// observed returns our agent's view of the pod's runtime state.
func (s *generateStep) observed() *podcache.Status {
	st := &podcache.Status{UID: podUID, Name: podName, Namespace: namespace, IPs: s.IPs, SandboxOf: map[string]string{}}
	st.Sandboxes = cloneAll(s.Sandboxes)
	for _, c := range s.Containers {
		st.Containers = append(st.Containers, clone(c.Status))
		st.SandboxOf[c.Status.Id] = c.Sandbox
	}
	podcache.SortSandboxes(st.Sandboxes)
	podcache.SortContainers(st.Containers)
	return st
}

// probes returns the results of our prober.
func (s *generateStep) probes(pod *corev1.Pod) status.Probes {
	specs := map[string]corev1.Container{}
	for _, c := range allContainers(&pod.Spec) {
		specs[c.Name] = c
	}
	result := func(probe *corev1.Probe, known string) status.ProbeResult {
		switch {
		case probe == nil:
			return status.NoProbe
		case !s.Workers || known == "":
			return status.ProbeUnknown
		case known == "passed":
			return status.ProbePassed
		default:
			return status.ProbeFailed
		}
	}
	return func(container, id string) (startup, readiness status.ProbeResult) {
		if c := s.newest(container); c == nil || c.Id != id {
			return status.ProbeUnknown, status.ProbeUnknown
		}
		c, facts := specs[container], s.Probes[container]
		return result(c.StartupProbe, facts.Startup), result(c.ReadinessProbe, facts.Readiness)
	}
}

// newest returns the newest container of a name.
func (s *generateStep) newest(name string) *runtimeapi.ContainerStatus {
	for _, c := range s.Containers {
		if c.Status.Metadata.Name == name {
			return c.Status
		}
	}
	return nil
}
