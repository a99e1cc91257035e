//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// byHand returns the running containers that [byHand] has created, and their sandboxes.
func (b *testbed) byHand(t *testing.T, agent string) (boxes []string, containers map[string]string) {
	t.Helper()
	labels := map[string]string{labelAgent: agent}
	answer, err := b.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: labels, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	require.NoError(t, err)
	containers = map[string]string{}
	for _, c := range answer.GetContainers() {
		boxes = append(boxes, c.GetPodSandboxId())
		containers[c.GetPodSandboxId()] = c.GetId()
	}
	return boxes, containers
}

// stopByHand stops a pod as an agent does. An overloaded runtime fails some calls, which are
// repeated.
func (b *testbed) stopByHand(ctx context.Context, box, container string) error {
	err := errors.New("not asked")
	for tries := 0; err != nil && tries < 10 && ctx.Err() == nil; tries++ {
		_, err = b.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container, Timeout: 30})
		if err == nil {
			_, err = b.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box})
		}
	}
	return err
}

// endManyByHand stops all pods that [byHand] has created, and then removes them. It stops and
// removes the pods concurrently. It returns when all were stopped and when all were removed.
func endManyByHand(t *testing.T, agent string, many int) (stopped, gone time.Duration) {
	t.Helper()
	boxes, containers := bed.byHand(t, agent)
	require.Len(t, boxes, many)
	atOnce := func(do func(box string) error) {
		errs := make(chan error, many)
		for _, box := range boxes {
			go func() { errs <- do(box) }()
		}
		for range many {
			require.NoError(t, <-errs)
		}
	}
	begin := time.Now()
	atOnce(func(box string) error { return bed.stopByHand(t.Context(), box, containers[box]) })
	stopped = time.Since(begin)
	atOnce(func(box string) error {
		_, err := bed.runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box})
		return err
	})
	return stopped, time.Since(begin)
}

// readySandboxes returns a condition on the number of ready sandboxes with the labels.
func (b *testbed) readySandboxes(labels map[string]string, accept func(ready int) bool) condition {
	return func() (string, bool) {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		answer, err := b.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			LabelSelector: labels, State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		}})
		return fmt.Sprint(len(answer.GetItems()), err), err == nil && accept(len(answer.GetItems()))
	}
}

// TestManyPods_StopTimeIsBoundedByRuntimeTime removes 50 manifests and measures the time until all
// sandboxes are stopped, and until all are removed. No pod needs its grace period of 30 s. The
// test compares the times with the runtime's own calls for the same number of pods, which run
// concurrently too. The target is 1.2 × on an idle machine. The load of this machine varies, so
// the test asserts 2 × and prints the measurements. If the agent was too slow, the test measures
// up to three times and compares the sums, because other processes may have delayed a round.
func TestManyPods_StopTimeIsBoundedByRuntimeTime(t *testing.T) {
	const rounds = 3
	many := part(t, 50)
	n, byHand := newNode(t), newByHand(t)
	n.start()
	var handStopped, handGone, stopped, gone, extra time.Duration
	slow := func() bool { return stopped >= 2*handStopped+extra || gone >= 2*handGone+extra }
	for round := 0; round < rounds && (round == 0 || slow()); round++ {
		name := fmt.Sprintf("stop%d-", round)
		n.startMany(name, many)
		byHand.many(name, many, many)
		byHandStopped, byHandGone := endManyByHand(t, byHand.agent, many)
		agentStopped, agentGone := n.endMany(name, many)
		for _, c := range []struct {
			what        string
			hand, agent time.Duration
		}{{"stopped", byHandStopped, agentStopped}, {"gone", byHandGone, agentGone}} {
			t.Logf("%d pods %s: by hand after %v, by the agent after %v (%.2f ×)", many, c.what,
				c.hand.Round(time.Millisecond), c.agent.Round(time.Millisecond), float64(c.agent)/float64(c.hand))
		}
		handStopped, handGone = handStopped+byHandStopped, handGone+byHandGone
		stopped, gone, extra = stopped+agentStopped, gone+agentGone, extra+2*time.Second
	}
	require.False(t, slow(), "the agent must need less than twice the time of the runtime and 2 s")
}

// manyPatience is how long the start and the end of many pods may take.
const manyPatience = 5 * time.Minute

// startMany writes the manifests of pods with a grace period of 30 s at once, and waits until
// all pods are running.
func (n *node) startMany(name string, many int) {
	n.t.Helper()
	for i := range many {
		pod := fmt.Sprintf("%s%d", name, i)
		n.write(pod+".yaml", endText(pod, 30, fmt.Sprintf("containers: [{name: main, image: %q, args: [sleep, \"3600\"]}]", imageServer)))
	}
	waitFor(n.t, manyPatience, "the agent to run all pods", n.allRun(many))
}

// endMany removes the manifests that [node.startMany] has written. It returns when all sandboxes
// were stopped and when all were removed.
func (n *node) endMany(name string, many int) (stopped, gone time.Duration) {
	n.t.Helper()
	labels := map[string]string{labelAgent: n.name}
	begin := time.Now()
	for i := range many {
		n.remove(fmt.Sprintf("%s%d.yaml", name, i))
	}
	waitFor(n.t, manyPatience, "all sandboxes to be stopped", bed.readySandboxes(labels, func(ready int) bool { return ready == 0 }))
	stopped = time.Since(begin)
	waitFor(n.t, manyPatience, "all sandboxes to be removed", func() (string, bool) {
		boxes, err := bed.sandboxes(labels)
		return fmt.Sprint(len(boxes), err), err == nil && len(boxes) == 0
	})
	return stopped, time.Since(begin)
}
