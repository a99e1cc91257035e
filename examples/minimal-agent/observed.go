package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

const (
	// runtimePeriod is how often the runtime is asked how it is while it is well, so
	// that one that hangs shows within 11 s. One that ends shows at once: that ends
	// the stream of events, whereupon a relist fails and has it asked.
	runtimePeriod = 8 * time.Second
	// troublePeriod is the same while it is not well.
	troublePeriod = 2 * time.Second
	// runtimePatience is how long it may take to answer that before it counts as
	// hung: the kubelet waits two minutes.
	runtimePatience = 3 * time.Second
	// flushPatience is how long the agent stays to save what it said last.
	flushPatience = 5 * time.Second
)

// plegEvent wakes the worker of a pod in which something changed.
func (a *agent) plegEvent(_ context.Context, e pleg.Event) {
	a.probes.Refresh(e.PodUID)
	if e.Type != pleg.ContainerStarted {
		a.exits.tell(e.ContainerID)
	}
	pod, known := a.pods.GetPodByUID(e.PodUID)
	if !known {
		// The end of its worker's work, or of its removal, triggers the sweep.
		if !a.workers.CouldHaveRunningContainers(e.PodUID) && !a.removals.underWay(e.PodUID) {
			a.sweep.Trigger()
		}
		return
	}
	if e.Type != pleg.ContainerRemoved {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
	}
}

// refresh looks at one pod in the runtime now.
func (a *agent) refresh(ctx context.Context, uid types.UID) (*podcache.Status, error) {
	now := time.Now()
	if err := a.pleg.RelistPod(ctx, uid); err != nil {
		return nil, err
	}
	return a.cache.GetNewerThan(ctx, uid, now)
}

// relisted has the runtime asked at once when a relist shows that it has stopped
// answering or answers again.
func (a *agent) relisted(err error) {
	if (err == nil) != (a.runtime.get() == nil) {
		a.ask.Trigger()
	}
}

// askRuntime asks the runtime whether it and its network are ready, and returns when
// to ask again.
func (a *agent) askRuntime(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, runtimePatience)
	defer cancel()
	answer, err := a.node.cri.Status(ctx, false)
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // the agent stops
	case grpcstatus.Code(err) == codes.DeadlineExceeded: // by our clock or by the runtime's
		a.runtimeIs(fmt.Errorf("no answer within %v", runtimePatience))
	case err != nil:
		a.runtimeIs(err)
	default:
		a.features.set(answer)
		a.runtimeIs(notReady(answer.GetStatus()))
	}
	a.statusNow() // so that the times of the node's conditions are right
	if a.runtime.get() != nil {
		return troublePeriod
	}
	return runtimePeriod
}

// runtimeIs takes note of why the runtime is not well, nil if it is, and tells when
// that changes.
func (a *agent) runtimeIs(err error) {
	before := a.runtime.get()
	a.runtime.set(err)
	switch {
	case err != nil && (before == nil || errors.Is(before, errNotKnownYet)):
		a.console.node(a.opts.nodeName, fmt.Sprintf("the runtime is not ready: %v", err))
	case err == nil && before != nil && !errors.Is(before, errNotKnownYet):
		a.console.node(a.opts.nodeName, "the runtime is ready again")
	}
}

// notReady returns why the runtime says that it can't run pods, nil if it can.
func notReady(s *runtimeapi.RuntimeStatus) error {
	var errs []error
	for _, c := range s.GetConditions() {
		if (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) && !c.GetStatus() {
			errs = append(errs, fmt.Errorf("%s is false: %s: %s", c.GetType(), c.GetReason(), c.GetMessage()))
		}
	}
	return errors.Join(errs...)
}

// generate computes a pod's status from what is known now.
func (a *agent) generate(ctx context.Context, pod *corev1.Pod, observed *podcache.Status, terminal bool) corev1.PodStatus {
	previous, _ := a.statuses.GetPodStatus(pod.UID)
	s := status.Generate(status.Input{
		Pod:         pod,
		Runtime:     observed,
		RuntimeName: a.node.runtimeName,
		Previous:    previous,
		Terminal:    terminal,
		Waiting:     a.runner.Waiting(pod.UID),
		Enforced:    a.runner.Enforced(ctx, pod.UID),
		Devices:     a.runner.Health(pod.UID),
		LastWords:   podrunner.LastWords,
		NodeIPs:     a.host.ips,
		Probes:      a.probes.forStatus(pod.UID),
		Now:         time.Now(),
	})
	if over := a.deadline.ShouldEvict(pod); over.Evict && !podspec.IsTerminal(s.Phase) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, over.Reason, over.Message
	}
	return s
}

// saidBefore returns what an agent before this one said of a pod. That it refused one
// does not count, as this one may know better, nor that it ended one with the node.
func (a *agent) saidBefore(uid types.UID) (corev1.PodStatus, bool) {
	s, ok := a.saved.Status(uid)
	if s.Phase == corev1.PodFailed && (len(s.ContainerStatuses) == 0 || strings.HasPrefix(s.Message, rejectedMessage) || s.Reason == podworker.ReasonTerminated) {
		return corev1.PodStatus{}, false
	}
	return s, ok
}

// flush saves what was said last, so that the next agent begins with it.
func (a *agent) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushPatience)
	defer cancel()
	if err := a.publish.Flush(ctx); err != nil {
		a.log.ErrorContext(ctx, "what was last said is not saved", "err", err)
	}
}

func (a *agent) setStatus(pod *corev1.Pod, s corev1.PodStatus) corev1.PodStatus {
	stored, _ := a.statuses.SetPodStatus(pod, s)
	return stored
}

// podsWithStatus returns copies of the desired pods with their latest status.
func (a *agent) podsWithStatus() []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range a.pods.GetPods() {
		out = append(out, a.withStatus(p))
	}
	return out
}
