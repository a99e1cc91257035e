//go:build linux && hostile

package hostile

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

const (
	agentName = "hostile"
	nodeName  = "node1"

	labelAgent         = "io.kubeparts.agent"
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	// monitorPeriod is the time between two checks of the monitor.
	monitorPeriod = 70 * time.Millisecond
)

// monitor checks the objects of the node directly, without the proxy.
type monitor struct {
	node   *fakecri.Node
	others map[string]bool // ids of the objects of other clients
	before string          // the state of these objects at the beginning

	mu     sync.Mutex
	lax    bool // the agent gets or got wrong responses, so it may have created duplicates
	checks int
}

// view is the state of the node at one time.
type view struct {
	ready    map[string]int // sandboxes that are ready, by pod UID
	running  map[string]int // containers that run, by pod UID and container name
	byName   map[string][2]int
	ours     []string // sandboxes and containers in any state
	foreign  string
	problems []string
}

// snapshot returns the current state of the node.
func (m *monitor) snapshot(ctx context.Context) (v view, err error) {
	v = view{ready: map[string]int{}, running: map[string]int{}, byName: map[string][2]int{}}
	boxes, err := m.node.ListPodSandbox(ctx, nil)
	if err != nil {
		return v, err
	}
	for _, b := range boxes {
		switch l := b.GetLabels(); {
		case m.others[b.GetId()]:
			v.foreign += fmt.Sprintf("sandbox %s %v\n", b.GetMetadata().GetName(), b.GetState())
		case l[labelAgent] == agentName:
			v.ours = append(v.ours, fmt.Sprintf("sandbox %s of pod %s %v", b.GetId(), l[labelPodUID], b.GetState()))
			if b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				v.ready[l[labelPodUID]]++
				n := v.byName[l[labelPodName]]
				v.byName[l[labelPodName]] = [2]int{n[0] + 1, n[1]}
			}
		default:
			v.problems = append(v.problems, fmt.Sprintf("sandbox %s has no label of the agent", b.GetId()))
		}
	}
	containers, err := m.node.ListContainers(ctx, nil)
	if err != nil {
		return v, err
	}
	for _, c := range containers {
		switch l := c.GetLabels(); {
		case m.others[c.GetId()]:
			v.foreign += fmt.Sprintf("container %s %v\n", c.GetMetadata().GetName(), c.GetState())
		case l[labelAgent] == agentName:
			v.ours = append(v.ours, fmt.Sprintf("container %s, %s #%d in sandbox %s of pod %s %v",
				c.GetId(), l[labelContainerName], c.GetMetadata().GetAttempt(), c.GetPodSandboxId(), l[labelPodUID], c.GetState()))
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				v.running[l[labelPodUID]+" "+l[labelContainerName]]++
				n := v.byName[l[labelPodName]]
				v.byName[l[labelPodName]] = [2]int{n[0], n[1] + 1}
			}
		default:
			v.problems = append(v.problems, fmt.Sprintf("container %s has no label of the agent", c.GetId()))
		}
	}
	return v, nil
}

// doubles returns the sandboxes and containers that run twice.
func (v view) doubles() (all []string) {
	for uid, n := range v.ready {
		if n > 1 {
			all = append(all, fmt.Sprintf("pod UID %s has %d ready sandboxes", uid, n))
		}
	}
	for key, n := range v.running {
		if n > 1 {
			all = append(all, fmt.Sprintf("container %s runs %d times", key, n))
		}
	}
	return all
}

// setLax sets whether duplicates are allowed.
func (m *monitor) setLax(lax bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lax = lax
}

// check checks the node once, and returns all problems.
func (m *monitor) check(ctx context.Context) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, err := m.snapshot(ctx)
	if err != nil {
		return nil // the node restarts
	}
	m.checks++
	problems := v.problems
	if !m.lax {
		problems = append(problems, v.doubles()...)
	}
	if v.foreign != m.before {
		problems = append(problems, fmt.Sprintf("objects of other clients have changed from\n%sto\n%s", m.before, v.foreign))
	}
	return problems
}

// run checks until ctx is done, and reports the first problem.
func (m *monitor) run(ctx context.Context, report func(string)) {
	tick := time.NewTicker(monitorPeriod)
	defer tick.Stop()
	for {
		if problems := m.check(ctx); len(problems) > 0 {
			report(fmt.Sprintf("the monitor saw: %q", problems))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// foreignPods creates pods of other clients on a node: of an agent with another name, of a
// kubelet, and without labels. Each has a running and an exited container. They have the
// same names as the agent's own pods.
func foreignPods(ctx context.Context, node *fakecri.Node) (ids map[string]bool, err error) {
	ids = map[string]bool{}
	for i, labels := range []map[string]string{
		nil,
		{labelPodName: "plain-" + nodeName, labelPodNamespace: "default", labelPodUID: "foreign-uid"},
		{labelPodName: "plain-" + nodeName, labelPodNamespace: "default", labelPodUID: "foreign-uid-2", labelAgent: "another"},
		{labelPodName: "two-" + nodeName, labelPodNamespace: "default", labelPodUID: "foreign-uid-3", labelAgent: ""},
	} {
		box := &runtimeapi.PodSandboxConfig{Labels: labels, Metadata: &runtimeapi.PodSandboxMetadata{
			Name: fmt.Sprintf("foreign-%d", i), Namespace: "default", Uid: fmt.Sprintf("foreign-%d", i),
		}}
		id, err := node.RunPodSandbox(ctx, box, "")
		if err != nil {
			return nil, err
		}
		ids[id] = true
		for _, name := range []string{"main", "ended"} {
			c := &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: name}, Labels: map[string]string{labelContainerName: name},
				Image: &runtimeapi.ImageSpec{Image: "demo/web:1"},
			}
			maps.Copy(c.Labels, labels)
			container, err := node.CreateContainer(ctx, id, c, box)
			if err != nil {
				return nil, err
			}
			ids[container] = true
			if err := node.StartContainer(ctx, container); err != nil {
				return nil, err
			}
			if name == "ended" {
				if err := node.StopContainer(ctx, container, 0); err != nil {
					return nil, err
				}
			}
		}
	}
	return ids, nil
}
