package termination

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is a pod that terminates, and the behaviour of its containers.
type world struct {
	Pod        *corev1.Pod
	Grace      int64 // seconds
	Containers []*container

	// scale multiplies all durations, to observe how a kubelet without fractions of seconds
	// would behave with them. quiet is set if the runtime hides from the kubelet that it
	// cannot stop a container.
	scale time.Duration
	quiet bool

	kubelet   *kubelet // the kubelet that plays this world
	predicted []judge.Prediction
}

// A container is one of the pod.
type container struct {
	Name    string
	Running bool
	// HookRan is set if our side has recorded that the preStop hook ran before the agent
	// restarted. The kubelet has no such record.
	HookRan bool
	// Hook is the duration of the preStop hook, 0 without a hook. Survives is set if it
	// continues after its container has ended.
	Hook     time.Duration
	Survives bool
	// Ends is the time from the signal to the end of the container. Exits is the time from
	// the start of the world at which it exits by itself; 0 means never.
	Ends, Exits time.Duration
	// Fails is the time after which the runtime returns that it cannot stop the container; 0
	// means never.
	Fails time.Duration
}

// never is longer than any grace period.
const never = time.Hour

func drawWorld(d *judge.Draw) *world {
	w := &world{scale: 1, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod"}}}
	w.Grace = judge.Pick(d, int64(30), 0, 1, 2, 3, 10)
	spec := &w.Pod.Spec
	for i := range d.Between(1, 3) {
		spec.Containers = append(spec.Containers, w.draw(d, fmt.Sprintf("main-%d", i)))
	}
	for i := range d.Between(0, 4) {
		c := w.draw(d, fmt.Sprintf("init-%d", i))
		if d.Chance(75) {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		} else {
			c.Lifecycle = nil // the API does not permit hooks of init containers
			w.container(c.Name).Hook = 0
		}
		spec.InitContainers = append(spec.InitContainers, c)
	}
	if d.Chance(20) {
		c := w.draw(d, "debug")
		w.container(c.Name).Hook = 0
		spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name}}}
	}
	return w
}

func (w *world) draw(d *judge.Draw, name string) corev1.Container {
	spec := corev1.Container{Name: name}
	c := &container{Name: name, Running: !d.Chance(20)}
	if d.Chance(50) {
		c.Hook = judge.Pick(d, 310*time.Millisecond, 1320*time.Millisecond, 4430*time.Millisecond, 12340*time.Millisecond, never)
		c.Survives = d.Chance(40)
		c.HookRan = d.Chance(10)
		spec.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{name}}}}
	}
	c.Ends = judge.Pick(d, 15*time.Millisecond, 725*time.Millisecond, 1535*time.Millisecond, 5045*time.Millisecond, 13055*time.Millisecond, never)
	if d.Chance(20) {
		c.Exits = judge.Pick(d, 206*time.Millisecond, 2207*time.Millisecond, 9208*time.Millisecond)
	}
	if d.Chance(8) {
		c.Fails = judge.Pick(d, 1009*time.Millisecond, 5010*time.Millisecond)
	}
	// No two containers do anything at the same time: which is first would depend on chance.
	shift := time.Duration(len(w.Containers)+1) * time.Millisecond / 10
	for _, t := range []*time.Duration{&c.Hook, &c.Ends, &c.Exits, &c.Fails} {
		if *t > 0 {
			*t += shift
		}
	}
	w.Containers = append(w.Containers, c)
	return spec
}

func (w *world) container(name string) *container {
	return w.Containers[slices.IndexFunc(w.Containers, func(c *container) bool { return c.Name == name })]
}

// states is what our side knows of the containers.
func (w *world) states() (all []lifecycle.ContainerState) {
	for _, c := range w.Containers {
		all = append(all, lifecycle.ContainerState{Name: c.Name, Running: c.Running, PreStopped: c.HookRan})
	}
	return all
}
