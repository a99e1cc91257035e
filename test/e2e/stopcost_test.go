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

// byHand finds the running containers that [byHand] has made, each with its
// sandbox.
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

// stopByHand stops a pod as an agent does. A runtime that has too much to do at once
// gives up some of it, and is asked again.
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

// endManyByHand stops all that [byHand] has made, at once, then removes it, at once, and
// returns when all was stopped and when all was gone.
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

// readySandboxes returns a condition on how many sandboxes with the labels are
// ready.
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

// TestManyPodsEndAlmostAsFastAsByHand: 50 manifests removed to all sandboxes stopped, and
// to all gone, with a grace period of 30 s that nobody needs, against the runtime's own
// calls for as many of the same, all at once too. The figure to keep is 1.2 × on a quiet
// machine. This one may be busy with other things, at one time more than at another: the
// test asserts 2 × and prints what it has measured.
func TestManyPodsEndAlmostAsFastAsByHand(t *testing.T) {
	const many, patience = 50, 5 * time.Minute
	n, byHand := newNode(t), newByHand(t)
	n.start()
	for i := range many {
		name := fmt.Sprintf("stop%d", i)
		n.write(name+".yaml", endText(name, 30, fmt.Sprintf("containers: [{name: main, image: %q, args: [sleep, \"3600\"]}]", imageServer)))
	}
	waitFor(t, patience, "the agent to run them all", func() (string, bool) {
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
	waitFor(t, patience, "all sandboxes to be gone", func() (string, bool) {
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
