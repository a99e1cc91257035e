package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/internal/nodeloop"
	"github.com/kubeparts/kubeparts/agent/internal/podloop"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// pods returns the observers of the pod loop.
func (o Observers) pods() podloop.Observers {
	loop := podloop.Observers{
		Admission: o.Admission, Preemption: o.Preemption, Workers: o.Workers, Runner: o.Runner, Hooks: o.Hooks,
		Images: o.Images, Volumes: o.Volumes, Edited: o.Edited, Searched: o.Searched, PLEG: o.PLEG, Probes: o.Probes, Statuses: o.Statuses, Publisher: o.Publisher,
	}
	if o.Pod != nil {
		loop.Pod = func(m podloop.Move) {
			o.Pod(Move{Pod: m.Pod, From: State(m.From), To: State(m.To), Adopted: m.Adopted, Reason: m.Reason})
		}
	}
	return loop
}

// node returns the observers of the node loop. The given function returns the pod and the name of
// the container for the pod UID and the container ID of an OOM kill.
func (o Observers) node(victim func(types.UID, string) (*corev1.Pod, string, bool)) nodeloop.Observers {
	loop := nodeloop.Observers{Eviction: o.Eviction, ImageGC: o.ImageGC, ContainerGC: o.ContainerGC, Logs: o.Logs, OOM: o.OOM}
	if o.Killed != nil {
		loop.Killed = func(k oomwatch.Kill) {
			pod, container, _ := victim(k.PodUID, k.ContainerID)
			o.Killed(OOMKill{Kill: k, Pod: pod, Container: container})
		}
	}
	return loop
}

// observedCgroups reports the operations on the cgroups of pods to an observer.
type observedCgroups struct {
	podloop.Cgroups
	clock   clock.PassiveClock
	observe func(operation string, took time.Duration)
}

// timed calls the given function and reports the duration of the call.
func (o observedCgroups) timed(operation string, do func() error) error {
	began := o.clock.Now()
	err := do()
	o.observe(operation, o.clock.Since(began))
	return err
}

// Ensure implements [podloop.Cgroups].
func (o observedCgroups) Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (parent string, err error) {
	err = o.timed("create", func() (err error) {
		parent, err = o.Cgroups.Ensure(ctx, pod, quotaPeriod)
		return err
	})
	return parent, err
}

// Update implements [podloop.Cgroups].
func (o observedCgroups) Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error {
	return o.timed("update", func() error { return o.Cgroups.Update(ctx, pod, quotaPeriod) })
}

// UpdateQoS implements [podloop.Cgroups].
func (o observedCgroups) UpdateQoS(ctx context.Context, pods []*corev1.Pod) error {
	return o.timed("update", func() error { return o.Cgroups.UpdateQoS(ctx, pods) })
}

// Remove implements [podloop.Cgroups].
func (o observedCgroups) Remove(ctx context.Context, uid types.UID) error {
	return o.timed("destroy", func() error { return o.Cgroups.Remove(ctx, uid) })
}
