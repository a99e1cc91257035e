package agent_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/prober"
)

// probedPod returns a pod with images of newProbedNode. Its readiness probe succeeds, and its
// liveness probe fails for the first time after 30 s.
func probedPod() *corev1.Pod {
	exec := func(command string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}, PeriodSeconds: 10}
	}
	p := newPod("web", "probed:1")
	p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = exec("true"), exec("false")
	p.Spec.Containers[0].LivenessProbe.InitialDelaySeconds = 30
	return p
}

func newProbedNode(t *testing.T) *fakecri.Node {
	t.Helper()
	return newNode(t, func(c *fakecri.Config) {
		c.PullAny = true
		c.Programs["probed:1"] = fakecri.Program{Exec: map[string]fakecri.Exec{"true": {}, "false": {ExitCode: 1, Stdout: "no luck"}}}
	})
}

func TestAgent_Probes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := probedPod()
		a := start(t, config(newProbedNode(t), newSource(web).file()))
		after(35 * time.Second)
		probes := a.Probes(web.UID)
		require.Len(t, probes, 2)
		require.Equal(t, []prober.Kind{prober.Readiness, prober.Liveness}, []prober.Kind{probes[0].Kind, probes[1].Kind})
		require.Equal(t, "main", probes[0].Container)
		require.Equal(t, web.Spec.Containers[0].LivenessProbe, probes[1].Spec)
		require.Equal(t, prober.Success, probes[0].Result)
		require.Len(t, probes[0].Runs, 4)
		require.Len(t, probes[1].Runs, 1)
		require.Equal(t, prober.Failed, probes[1].Runs[0].Outcome)
		require.Empty(t, a.Probes("other"))

		e, err := a.Explain(t.Context(), web.UID)
		require.NoError(t, err)
		require.Equal(t, []string{"the liveness probe of container main fails, 1 of 3 failures: no luck"}, e.Why)
		require.Len(t, e.Next, 2)
		require.Equal(t, "the liveness probe of container main runs; after 2 more failures the container is killed", e.Next[1].What)
		require.WithinRange(t, e.Next[1].At, time.Now(), time.Now().Add(10*time.Second))
	})
}

func TestAgent_ExplainWithRuntimeProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, web := newNode(t), newPod("web", "demo/web:1")
		c := config(node, newSource(web).file())
		c.Eviction = hardEviction(t)
		c.StaticPods = agent.OrdinaryStaticPods
		a := start(t, c)
		after(20 * time.Second)
		e, err := a.Explain(t.Context(), web.UID)
		require.NoError(t, err)
		require.Equal(t, []string{"all its containers run and are ready"}, e.Why)
		require.Empty(t, e.Next)
		require.Contains(t, e.Rank, "number 1 of 1 in the eviction order for nodefs.available (nodefs.available<10%; ")

		require.NoError(t, node.Fail("Status", fakecri.Fault{Err: errors.New("it starts")}))
		after(time.Minute)
		e, err = a.Explain(t.Context(), web.UID)
		require.NoError(t, err)
		require.Equal(t, "the container runtime is not ready: it starts", e.Why[0])

		node.ClearFaults("Status")
		require.NoError(t, node.Fail("ListPodSandbox", fakecri.Fault{Err: errors.New("no list")}))
		after(5 * time.Minute)
		e, _ = a.Explain(t.Context(), web.UID)
		require.Contains(t, e.Why[0], "could not list the pods of the container runtime: pleg was last seen active")
	})
}

// A pod that uses no resources of the node has no rank. Its explanation requires no call of
// the runtime.
func TestAgent_ExplainEndedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newPod("job", "demo/job:1")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		node := newNode(t)
		a := start(t, config(node, newSource(job).file()))
		after(5 * time.Minute)
		require.NoError(t, node.Fail("Status", fakecri.Fault{Err: errors.New("it starts")}))
		after(time.Minute)
		require.Equal(t, []string{"job ended Succeeded"}, a.phases())
		e, err := a.Explain(t.Context(), job.UID)
		require.NoError(t, err)
		require.Empty(t, e.Rank)
		require.Len(t, e.Why, 3)
		require.Contains(t, e.Why[1], "container main ended with exit code 0 (Completed) at ")
		require.Equal(t, "it does not run again: its restart policy is Never", e.Why[2])
	})
}
