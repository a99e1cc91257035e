package status

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const (
	namespace = "ns"
	podName   = "pod"
	podUID    = types.UID("uid-1")

	sourceAnnotation = "kubernetes.io/config.source"
	mirrorAnnotation = "kubernetes.io/config.mirror"
)

// drawPod returns a pod with containers of all kinds and no status.
func drawPod(d *judge.Draw) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: podName, Namespace: namespace, UID: podUID, Generation: int64(d.Between(1, 3)),
	}}
	if d.Chance(15) {
		pod.Annotations = map[string]string{sourceAnnotation: "file"}
	}
	pod.Spec.RestartPolicy = judge.Pick(d, corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)
	pod.Spec.HostNetwork = d.Chance(15)
	rules := judge.Pick(d, 0, 0, 25)
	names := []string{"c1", "c2", "c3"}[:d.Between(1, 3)]
	if d.Chance(20) {
		slices.Reverse(names)
	}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(d, name, rules))
	}
	inits := []string{"i3", "i2", "i1"}[:judge.Pick(d, 0, 1, 2, 3)]
	for _, name := range inits {
		c := drawContainer(d, name, rules)
		if d.Chance(35) {
			c.RestartPolicy, c.RestartPolicyRules = new(corev1.ContainerRestartPolicyAlways), nil
		} else {
			c.ReadinessProbe, c.StartupProbe = nil, nil
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range judge.Pick(d, 0, 0, 1, 2) {
		c := drawContainer(d, fmt.Sprintf("e%d", i), 0)
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: c.Name, Image: c.Image, VolumeMounts: c.VolumeMounts, TerminationMessagePolicy: c.TerminationMessagePolicy,
			},
		})
	}
	for i := range judge.Pick(d, 0, 0, 1, 2) {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate(i)})
	}
	if d.Chance(10) {
		pod.Spec.Resources = new(drawResources(d))
		delete(pod.Spec.Resources.Requests, corev1.ResourceEphemeralStorage)
		delete(pod.Spec.Resources.Limits, corev1.ResourceEphemeralStorage)
	}
	return pod
}

func gate(i int) corev1.PodConditionType {
	return corev1.PodConditionType(fmt.Sprintf("example.com/gate-%d", i))
}

func drawContainer(d *judge.Draw, name string, rules int) corev1.Container {
	c := corev1.Container{Name: name, Image: "registry/" + name + ":1", Resources: drawResources(d)}
	if d.Chance(25) {
		c.ReadinessProbe = &corev1.Probe{}
	}
	if d.Chance(20) {
		c.StartupProbe = &corev1.Probe{}
	}
	for i := range judge.Pick(d, 0, 0, 1, 2) {
		c.VolumeMounts = append(c.VolumeMounts, drawMount(d, i))
	}
	if d.Chance(15) {
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	if !d.Chance(rules) {
		return c
	}
	c.RestartPolicy = new(judge.Pick(d, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyAlways))
	for range d.Int(3) {
		c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{
			Action: judge.Pick(d, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers),
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: judge.Pick(d, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn),
				Values:   judge.Pick(d, []int32{42}, []int32{1, 42}, []int32{0}, []int32{137}),
			},
		})
	}
	return c
}

func drawMount(d *judge.Draw, i int) corev1.VolumeMount {
	m := corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", i), MountPath: fmt.Sprintf("/mnt/%d", i), ReadOnly: d.Chance(60)}
	if m.ReadOnly {
		m.RecursiveReadOnly = judge.Pick(d, nil, new(corev1.RecursiveReadOnlyDisabled), new(corev1.RecursiveReadOnlyIfPossible), new(corev1.RecursiveReadOnlyEnabled))
	}
	return m
}

func drawResources(d *judge.Draw) (r corev1.ResourceRequirements) {
	if !d.Chance(50) {
		return r
	}
	r.Requests = drawList(d, "1m", "2m", "100m", "250m")
	if d.Chance(60) {
		r.Limits = drawList(d, "5m", "10m", "250m", "500m")
	}
	for name, limit := range r.Limits { // as the API defaults it
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit
		}
	}
	return r
}

func drawList(d *judge.Draw, cpu ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if d.Chance(70) {
		list[corev1.ResourceCPU] = resource.MustParse(judge.Pick(d, cpu...))
	}
	if d.Chance(70) {
		list[corev1.ResourceMemory] = resource.MustParse(judge.Pick(d, "64Mi", "128Mi", "100M"))
	}
	if d.Chance(10) {
		list[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
	}
	return list
}

// allContainers returns copies of a pod's containers of all kinds, in spec order.
func allContainers(spec *corev1.PodSpec) (all []corev1.Container) {
	all = append(append(all, spec.InitContainers...), spec.Containers...)
	for _, c := range spec.EphemeralContainers {
		all = append(all, corev1.Container(c.EphemeralContainerCommon))
	}
	return all
}
