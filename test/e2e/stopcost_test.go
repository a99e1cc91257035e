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

// endManyByHand stops all pods that [byHand] has created concurrently, then removes them
// concurrently, and returns when all were stopped and when all were removed.
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

// TestManyPodsEndAlmostAsFastAsByHand removes 50 manifests and measures the time until all
// sandboxes are stopped, and until all are removed. No pod needs its grace period of 30 s. It
// compares the times with the runtime's own calls for the same number of pods, also
// concurrently. The target is 1.2 × on an idle machine. The load of this machine varies, so
// the test asserts 2 × and prints the measurements.
func TestManyPodsEndAlmostAsFastAsByHand(t *testing.T) {
	const patience = 5 * time.Minute
	many := part(t, 50)
	n, byHand := newNode(t), newByHand(t)
	n.start()
	for i := range many {
		name := fmt.Sprintf("stop%d", i)
		n.write(name+".yaml", endText(name, 30, fmt.Sprintf("containers: [{name: main, image: %q, args: [sleep, \"3600\"]}]", imageServer)))
	}
	waitFor(t, patience, "the agent to run all pods", func() (string, bool) {
		pods, err := n.agent.pods()
		up := 0
		for i := range pods {
			if running(&pods[i]) {
				up++
			}
		}
		return fmt.Sprint(up, err), up == many
	})
	byHand.many("stop", many, many)

	handStopped, handGone := endManyByHand(t, byHand.agent, many)
	begin := time.Now()
	for i := range many {
		n.remove(fmt.Sprintf("stop%d.yaml", i))
	}
	waitFor(t, patience, "all sandboxes to be stopped", bed.readySandboxes(map[string]string{labelAgent: n.name}, func(ready int) bool { return ready == 0 }))
	stopped := time.Since(begin)
	waitFor(t, patience, "all sandboxes to be removed", func() (string, bool) {
		boxes, err := bed.sandboxes(map[string]string{labelAgent: n.name})
		return fmt.Sprint(len(boxes), err), err == nil && len(boxes) == 0
	})
	gone := time.Since(begin)
	for _, c := range []struct {
		what        string
		hand, agent time.Duration
	}{{"stopped", handStopped, stopped}, {"gone", handGone, gone}} {
		t.Logf("%d pods %s: by hand after %v, by the agent after %v (%.2f ×)", many, c.what,
			c.hand.Round(time.Millisecond), c.agent.Round(time.Millisecond), float64(c.agent)/float64(c.hand))
		require.Less(t, c.agent, 2*c.hand+2*time.Second, c.what)
	}
}
