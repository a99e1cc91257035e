package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is a pod, its initial objects in the runtime, and the events in each step before
// the plans.
type World struct {
	First *State
	Steps []Step
	// Ours is set if our plans are executed. Otherwise the kubelet's are.
	Ours bool
	// Without is the records that the agent lacks: back-off, probes or attempts. Our side
	// gets a nil function for it, and the kubelet an empty record.
	Without string

	// The kubelet's side sets the next fields for the rules. seen is the input of each step's
	// plans. did is the kubelet's actions for this input. plan returns the kubelet's actions
	// for any state.
	seen []*State
	did  []judge.Facts
	plan func(*State) judge.Facts

	predicted map[int][]judge.Prediction
}

// Records that an agent can lack.
const (
	withoutBackoff  = "back-off"
	withoutProbes   = "probes"
	withoutAttempts = "attempts"
)

// A Step is the events before a plan, and the calls that fail during its execution.
type Step struct {
	After  time.Duration
	Events []Event
	Fails  []string
}

func drawWorld(d *judge.Draw) *World {
	w := &World{First: &State{Now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Pod: drawPod(d), Logs: map[string]int{}}}
	w.First.Cgroup = podCgroup(w.First.Pod)
	w.First.PodHas = w.First.Pod.Spec.Resources
	if d.Chance(65) {
		drawRuntime(d, w.First)
	}
	if d.Chance(15) {
		w.First.Used = 1 << 30
	}
	w.Ours = d.Chance(40)
	if d.Chance(6) {
		w.Without = judge.Pick(d, withoutBackoff, withoutProbes, withoutAttempts)
	}
	if d.Chance(10) {
		w.First.MaxDelay = judge.Pick(d, time.Minute, 15*time.Second, 5*time.Second, time.Second)
	}
	if d.Chance(5) {
		w.Steps = drawInitialization(d)
	}
	for range d.Between(1, 7) {
		w.Steps = append(w.Steps, drawStep(d, w.First.Pod))
	}
	return w
}

func drawPod(d *judge.Draw) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: podUID}}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	pod.Spec.RestartPolicy = judge.Pick(d, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	pod.Spec.HostNetwork = d.Chance(10)
	for i := range max(0, d.Int(6)-2) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, drawContainer(d, fmt.Sprintf("init-%d", i), d.Chance(45)))
	}
	for i := range max(1, d.Int(4)) {
		pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(d, fmt.Sprintf("main-%d", i), false))
	}
	for i := range max(0, d.Int(8)-5) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, ephemeral(i))
	}
	if d.Chance(12) {
		pod.Spec.Resources = new(drawPodResources(d))
	}
	if d.Chance(5) {
		pod.Status.QOSClass = judge.Pick(d, corev1.PodQOSBurstable, corev1.PodQOSBestEffort, corev1.PodQOSGuaranteed)
	}
	return pod
}

func ephemeral(i int) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprintf("debug-%d", i), Image: "image:1"}}
}

func drawContainer(d *judge.Draw, name string, sidecar bool) corev1.Container {
	c := corev1.Container{Name: name, Image: "image:1"}
	init := name[0] == 'i'
	switch {
	case sidecar:
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	case d.Chance(20), init && d.Chance(25):
		c.RestartPolicy = new(judge.Pick(d, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure))
		if !init && d.Chance(30) {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
	}
	if c.RestartPolicy != nil && !sidecar {
		for range d.Int(3) {
			c.RestartPolicyRules = append(c.RestartPolicyRules, drawRule(d))
		}
	}
	if !init || sidecar {
		if d.Chance(30) {
			c.StartupProbe = &corev1.Probe{TerminationGracePeriodSeconds: judge.Maybe(d, 50, func() int64 { return 12 })}
		}
		if d.Chance(40) {
			c.LivenessProbe = &corev1.Probe{TerminationGracePeriodSeconds: judge.Maybe(d, 50, func() int64 { return 11 })}
		}
		c.ResizePolicy = drawPolicies(d)
	}
	c.Resources = drawResources(d)
	return c
}

func drawRule(d *judge.Draw) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{
		Action: judge.Pick(d, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers),
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: judge.Pick(d, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn),
			Values:   judge.Pick(d, []int32{42}, []int32{42, 43}, []int32{137}, []int32{0}),
		},
	}
}

func drawPolicies(d *judge.Draw) (policies []corev1.ContainerResizePolicy) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if d.Chance(35) {
			policies = append(policies, corev1.ContainerResizePolicy{
				ResourceName: name, RestartPolicy: judge.Pick(d, corev1.NotRequired, corev1.RestartContainer),
			})
		}
	}
	return policies
}

// drawResources draws requests and limits; requests are no more than limits.
func drawResources(d *judge.Draw) (r corev1.ResourceRequirements) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, amount string) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = resource.MustParse(amount)
	}
	if d.Chance(50) {
		set(&r.Requests, corev1.ResourceCPU, judge.Pick(d, "100m", "200m", "130m", "1m", "2m"))
	}
	if d.Chance(40) {
		set(&r.Limits, corev1.ResourceCPU, judge.Pick(d, "200m", "500m", "1"))
	}
	if d.Chance(30) {
		set(&r.Requests, corev1.ResourceMemory, judge.Pick(d, "16Mi", "32Mi"))
	}
	if d.Chance(40) {
		set(&r.Limits, corev1.ResourceMemory, judge.Pick(d, "64Mi", "128Mi", "100M"))
	}
	for name, limit := range r.Limits { // like the defaults of the API
		if _, asked := r.Requests[name]; !asked {
			set(&r.Requests, name, limit.String())
		}
	}
	return r
}

// drawPodResources draws pod-level resources. They are larger than those of all containers.
func drawPodResources(d *judge.Draw) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		list := corev1.ResourceList{}
		if cpu != "" {
			list[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			list[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return list
	}
	return corev1.ResourceRequirements{
		Requests: list(judge.Pick(d, "6", "7"), judge.Pick(d, "1Gi", "2Gi")),
		Limits:   list(judge.Pick(d, "", "7", "8"), judge.Pick(d, "", "2Gi", "3Gi")),
	}
}

func drawStep(d *judge.Draw, pod *corev1.Pod) (step Step) {
	step.After = judge.Pick(d, 0, time.Second, 9*time.Second, 10*time.Second, 11*time.Second, time.Minute, 5*time.Minute, 11*time.Minute)
	for range d.Int(4) {
		step.Events = append(step.Events, drawEvent(d))
	}
	if d.Chance(12) {
		step.Fails = append(step.Fails, drawFailure(d, pod))
	}
	return step
}

// drawInitialization draws an init container that fails repeatedly and backs off while the
// sidecars before it are resized.
func drawInitialization(d *judge.Draw) (steps []Step) {
	for range d.Between(3, 6) {
		steps = append(steps, Step{
			After:  judge.Pick(d, 0, time.Second, 9*time.Second),
			Events: []Event{{What: "resize in mid-initialization", Which: d.Int(60), resources: drawResources(d)}},
		})
	}
	return steps
}

// drawFailure draws a call that fails.
func drawFailure(d *judge.Draw, pod *corev1.Pod) string {
	call := judge.Pick(d, "RunPodSandbox", "StopPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "UpdateContainerResources")
	if call == "RunPodSandbox" || call == "StopPodSandbox" || call == "StopContainer" { // the kubelet stops several objects in random order
		return call
	}
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return call + " " + judge.Pick(d, names...)
}
