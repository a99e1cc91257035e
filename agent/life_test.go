package agent_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// TestAgent_LifeOfAPod checks the state changes of a pod, its statuses and its state in the
// runtime.
func TestAgent_LifeOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, pods, seen := newNode(t), newSource(), new(moves)
		c := config(node, pods.file())
		c.Observers.Pod = seen.add
		a := start(t, c)
		after(time.Second)
		require.Empty(t, a.Pods())

		web := newPod("web", "demo/web:1")
		pods.define(web)
		after(5 * time.Second)
		require.Equal(t, []string{"web admitted Running"}, a.phases())
		p, known := a.Pod(web.UID)
		require.True(t, known)
		require.Equal(t, "file", p.Source)
		require.True(t, p.Runtime.Running())
		require.NotEmpty(t, p.Spec.Status.PodIP)

		pods.define()
		after(10 * time.Second)
		require.Empty(t, a.Pods())
		_, known = a.Pod(web.UID)
		require.False(t, known)
		boxes, err := node.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{})
		require.NoError(t, err)
		require.Empty(t, boxes)
		require.Equal(t, []string{"offered", "admitted", "ending", "ended", "gone"}, seen.of(web.UID))
		a.stop()
		require.NoError(t, a.err())
		require.ErrorIs(t, a.Run(t.Context()), agent.ErrAlreadyRan)
	})
}

// A pod continues to run when its agent stops, and the next agent adopts it.
func TestAgent_Adoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, web, job := newNode(t), newPod("web", "demo/web:1"), newPod("job", "demo/job:1")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		root := t.TempDir()
		c := config(node, newSource(web, job).file())
		c.Root = root
		first := start(t, c)
		after(10 * time.Second)
		require.Equal(t, []string{"job ended Succeeded", "web admitted Running"}, first.phases())
		before, _ := first.Pod(web.UID)
		first.stop()
		require.NoError(t, first.err())
		after(time.Minute)

		seen := new(moves)
		c = config(node, newSource(web, job).file())
		c.Root, c.Observers.Pod = root, seen.add
		second := start(t, c)
		after(10 * time.Second)
		require.Equal(t, []string{"job ended Succeeded", "web admitted Running"}, second.phases())
		now, _ := second.Pod(web.UID)
		require.Equal(t, before.Spec.Status.ContainerStatuses, now.Spec.Status.ContainerStatuses)
		require.Equal(t, before.Spec.Status.StartTime, now.Spec.Status.StartTime)
		require.True(t, slices.ContainsFunc(seen.all, func(m agent.Move) bool {
			return m.Pod.UID == web.UID && m.To == agent.Admitted && m.Adopted
		}))
	})
}

// Node returns the same pointer until the node changes, and Changes reports the change.
func TestAgent_NodeAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		c, ports := config(node, newSource().file()), int32(0)
		c.NodeStatus = func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = ports }
		a := start(t, c)
		changes := a.Changes(t.Context())
		after(10 * time.Second)
		before := a.Node()
		require.Equal(t, "node1", before.Name)
		require.Equal(t, corev1.ConditionTrue, condition(before, corev1.NodeReady).Status)
		require.NotZero(t, before.Status.Allocatable.Cpu().MilliValue())
		for len(changes) > 0 {
			<-changes
		}
		after(time.Minute)
		require.Same(t, before, a.Node(), "the unchanged node must be the same pointer")

		ports = 10250
		a.SyncAll()
		after(time.Second)
		<-changes
		require.EqualValues(t, 10250, a.Node().Status.DaemonEndpoints.KubeletEndpoint.Port)
	})
}

func condition(n *corev1.Node, t corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// If the runtime does not respond, the node becomes not ready after a while, and Health names
// the runtime.
func TestAgent_HungRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		a := start(t, config(node, newSource(newPod("web", "demo/web:1")).file()))
		after(10 * time.Second)
		for _, check := range a.Health() {
			require.NoError(t, check.Err, check.Name)
		}
		require.NoError(t, node.Fail("Status", fakecri.Fault{Hang: true}))
		after(2 * time.Minute)
		require.Error(t, a.Health()[0].Err)
		require.Equal(t, "runtime", a.Health()[0].Name)
		require.Equal(t, corev1.ConditionFalse, condition(a.Node(), corev1.NodeReady).Status)
		node.ClearFaults("Status")
		after(20 * time.Second)
		require.NoError(t, a.Health()[0].Err)
		require.Equal(t, corev1.ConditionTrue, condition(a.Node(), corev1.NodeReady).Status)
	})
}

func TestAgent_Kill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newPod("web", "demo/web:1")
		a := start(t, config(newNode(t), newSource(web).file()))
		after(5 * time.Second)
		require.NoError(t, a.Kill(t.Context(), web.UID, podworker.KillOptions{}))
		after(time.Minute)
		require.NotContains(t, a.phases(), "web admitted Running", "a killed pod must not start again")
		require.ErrorContains(t, a.Kill(t.Context(), "other", podworker.KillOptions{}), "other")
	})
}

func TestAgent_StopPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, pods := newNode(t), newSource(newPod("web", "demo/web:1"), newPod("slow", "demo/slow:1"))
		a := start(t, config(node, pods.file()))
		after(5 * time.Second)
		require.ErrorContains(t, a.StopPods(t.Context(), podworker.ShutdownConfig{ShutdownGracePeriod: -1}), "ShutdownGracePeriod")
		require.NoError(t, a.StopPods(t.Context(), podworker.ShutdownConfig{}))
		for _, p := range a.Pods() {
			require.False(t, p.Runtime.Running(), p.Spec.Name)
		}
		pods.define(newPod("late", "demo/web:1"))
		after(10 * time.Second)
		require.NotContains(t, a.phases(), "late admitted Running")
		require.Equal(t, corev1.ConditionFalse, condition(a.Node(), corev1.NodeReady).Status)
	})
}

// The agent continues after a cancelled shutdown.
func TestAgent_StopPodsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stubborn := newPod("stubborn", "demo/stubborn:1")
		stubborn.Spec.TerminationGracePeriodSeconds = new(int64(600))
		pods := newSource(stubborn)
		a := start(t, config(newNode(t), pods.file()))
		after(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.Error(t, a.StopPods(ctx, podworker.ShutdownConfig{}))
		pods.define(stubborn, newPod("late", "demo/web:1"))
		after(10 * time.Second)
		require.Contains(t, a.phases(), "late admitted Running")
		require.Equal(t, corev1.ConditionTrue, condition(a.Node(), corev1.NodeReady).Status)
	})
}

func TestAgent_ExplainAndPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crash := newPod("crash", "demo/crash:1")
		a := start(t, config(newNode(t), newSource(crash).file()))
		after(30 * time.Second)
		e, err := a.Explain(t.Context(), crash.UID)
		require.NoError(t, err)
		require.Equal(t, agent.Admitted, e.Pod.State)
		require.NotEmpty(t, e.Why)
		require.NotEmpty(t, e.Next)
		require.NotEmpty(t, e.Plan)
		_, err = a.Explain(t.Context(), "other")
		require.ErrorIs(t, err, agent.ErrUnknownPod)
		plan, err := a.Plan(t.Context())
		require.NoError(t, err)
		require.NotZero(t, plan.Eviction.At)
		summary, err := a.Summary(t.Context())
		require.NoError(t, err)
		require.Equal(t, "node1", summary.Node.NodeName)
	})
}

// The agent evaluates its eviction thresholds as soon as the sources and the runtime have answered,
// and not only after the longest interval between two evaluations.
func TestAgent_EvaluatesThresholdsOnceReady(t *testing.T) {
	for name, arrange := range map[string]func(*agent.Config, *fakecri.Node){
		"nothing is late": func(*agent.Config, *fakecri.Node) {},
		"a source is late": func(c *agent.Config, _ *fakecri.Node) {
			c.Sources = []agent.Source{{Name: podspec.SourceFile, Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
				time.Sleep(3 * time.Second)
				return newSource().run(ctx, set)
			}}}
		},
		"the runtime is late": func(_ *agent.Config, node *fakecri.Node) { node.Restart(3 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := newNode(t)
				require.NoError(t, node.FillDisk(95<<30, 0))
				c := config(node, newSource().file())
				c.Eviction = hardEviction(t)
				arrange(&c, node)
				a := start(t, c)
				after(5 * time.Second)
				require.Equal(t, corev1.ConditionTrue, condition(a.Node(), corev1.NodeDiskPressure).Status)
			})
		})
	}
}

// If a source returns, Run returns an error that names the source.
func TestAgent_SourceReturnsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := agent.New(config(newNode(t), agent.Source{Name: "mine", Run: func(context.Context, func(context.Context, []*corev1.Pod)) error {
			return context.DeadlineExceeded
		}}))
		require.NoError(t, err)
		err = a.Run(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "mine")
	})
}

// Two agents can't use one Root.
func TestAgent_RootIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		c := config(node, newSource().file())
		c.Root = t.TempDir()
		start(t, c)
		after(time.Second)
		c.Name = "two"
		second, err := agent.New(c)
		require.NoError(t, err)
		require.ErrorContains(t, second.Run(t.Context()), "another agent uses this folder")
	})
}
