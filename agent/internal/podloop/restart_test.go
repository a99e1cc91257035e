package podloop

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// inRestarts runs before with an agent, and after with the next agent on the same node.
func inRestarts(t *testing.T, before, after func(b *bed), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, node, root := newStore(), newNode(t), t.TempDir()
		for _, life := range []func(*bed){before, after} {
			b := newBed(t, node, store, root, change...)
			b.start()
			life(b)
			b.stop()
		}
	})
}

func TestAdoption_RunningPod(t *testing.T) {
	t.Parallel()
	var before []fakecri.Call
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		before = b.node.Calls()
	}, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		time.Sleep(5 * time.Minute)
		require.Equal(b.t, "offered, admitted (adopted)", b.recorder.takeMoves("web"))
		for _, c := range b.node.Calls()[len(before):] {
			require.NotContains(b.t, []string{"RunPodSandbox", "StopContainer", "StartContainer", "CreateContainer"}, c.Method)
		}
		e, err := b.Explain(b.t.Context(), "uid-web")
		require.NoError(b.t, err)
		require.Equal(b.t, []string{"all its containers run and are ready", "it ran before this agent started"}, e.Why)
		require.Empty(b.t, e.Plan)
	})
}

func TestAdoption_EndedPod(t *testing.T) {
	t.Parallel()
	job := newPod("job", "job:1", restart(corev1.RestartPolicyNever))
	inRestarts(t, func(b *bed) {
		b.set(job)
		b.await("job", Ended)
		b.set(job)
	}, func(b *bed) {
		b.places.Store(1)
		b.set(newPod("web", "web:1"), job)
		p := b.await("job", Ended)
		require.Equal(b.t, corev1.PodSucceeded, p.Spec.Status.Phase, "no allocator must be called for the terminated pod")
		b.awaitRunning("web")
		require.Equal(b.t, "admitted, ending, ended", b.recorder.takeMoves("job"))
		b.set()
		b.awaitGone("job")
		b.awaitGone("web")
		require.Zero(b.t, b.sandboxes())
		b.set(job)
		b.await("job", Ended)
		require.Equal(b.t, "gone, offered, admitted, ending, ended", b.recorder.takeMoves("job"))
	}, ordinaryPods)
}

// If no status of a terminated pod was saved, only its container shows that it has
// terminated. Garbage collection must keep the container until the pod has gone through
// admission.
func TestAdoption_EndedPodWithoutStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		job := newPod("hang-job", "job:1", restart(corev1.RestartPolicyNever))
		node, root := newNode(t), t.TempDir()
		first := newBed(t, node, newStore(), root)
		first.start()
		first.set(job)
		first.await("hang-job", Ended)
		first.stop()

		gate := make(chan struct{})
		second := newBed(t, node, newStore(), root, hangs(gate, "ignores its ctx"))
		second.start()
		second.set(job)
		time.Sleep(20 * time.Second) // a handler has a deadline of 30 s
		second.await("hang-job", Offered)
		require.False(t, second.ContentRemovable("uid-hang-job"))
		require.False(t, second.RuntimeRemovable("uid-hang-job"))
		close(gate)
		require.Equal(t, corev1.PodSucceeded, second.await("hang-job", Ended).Spec.Status.Phase)
		second.stop()
	})
}

// A refusal by an earlier agent is not valid: the pod goes through admission again.
func TestAdoption_RefusedPod(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.places.Store(1)
		b.set(newPod("web", "web:1"), newPod("db", "web:1"))
		b.await("db", Refused)
		b.awaitRunning("web")
	}, func(b *bed) {
		b.places.Store(2)
		b.set(newPod("web", "web:1"), newPod("db", "web:1"))
		require.Empty(b.t, b.awaitRunning("db").Spec.Status.Reason)
	}, ordinaryPods)
}

// A running pod that admission rejects now is stopped, and goes through admission again
// afterwards.
func TestAdoption_RunningPodIsRefused(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "slow:1"), newPod("db", "slow:1"))
		b.awaitRunning("web")
		b.awaitRunning("db")
	}, func(b *bed) {
		b.set(newPod("web", "slow:1", unsupported), newPod("db", "slow:1", unsupported))
		p := b.await("web", Refused)
		require.Equal(b.t, "UnsupportedFields", p.Spec.Status.Reason)
		e, err := b.Explain(b.t.Context(), "uid-web")
		require.NoError(b.t, err)
		require.Equal(b.t, "the containers that an earlier agent started are stopped", e.Next[0].What)
		b.set(newPod("web", "web:2"), newPod("db", "slow:1", unsupported)) // during the termination
		b.awaitRunning("web")
		require.Equal(b.t, []string{"web:2"}, b.images("web"))
		b.eventually("no container of the pod runs", func() bool { return len(b.images("db")) == 0 })
		p = b.await("db", Refused)
		require.Equal(b.t, corev1.PodFailed, p.Spec.Status.Phase)
		require.Equal(b.t, "UnsupportedFields", p.Spec.Status.Reason)
		b.set(newPod("web", "web:2"), newPod("db", "web:3"))
		b.awaitRunning("db")
	})
}

func TestAdoption_DeletedPod(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.give(podspec.SourceAPI, newPod("web", "web:1"))
		b.awaitRunning("web")
	}, func(b *bed) {
		b.give(podspec.SourceAPI, newPod("web", "web:1", deletedIn(30)))
		b.await("web", Removed)
		require.Equal(b.t, "ending, ended, removed", b.recorder.takeMoves("web"))
		require.Zero(b.t, b.sandboxes())
	}, twoSources(podspec.SourceAPI))
}

// A pod that no source defines any more is stopped, but not before all sources have called set.
func TestOrphans(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "web:1"), newPod("job", "job:1", restart(corev1.RestartPolicyNever)))
		b.awaitRunning("web")
		b.await("job", Ended)
	}, func(b *bed) {
		b.set()
		time.Sleep(time.Minute)
		require.Equal(b.t, []string{"web:1"}, b.images("web"))
		require.ErrorContains(b.t, b.check("sources").Err, "waiting for http")
		b.give(podspec.SourceHTTP)
		b.eventually("all sandboxes and pods are removed", func() bool { return b.sandboxes() == 0 && len(b.Pods()) == 0 })
		require.Equal(b.t, "ending (adopted), ended (adopted), gone (adopted)", b.recorder.takeMoves("web"))
		require.Equal(b.t, "ended, gone", b.recorder.takeMoves("job"))
		require.NoError(b.t, b.check("sources").Err)
		keys, err := b.store.Keys(b.t.Context(), "statuses/")
		require.NoError(b.t, err)
		require.Empty(b.t, keys)
	}, twoSources(podspec.SourceFile, podspec.SourceHTTP))
}

// An earlier agent has started a pod of the same name. That pod terminates before the new pod
// starts.
func TestOrphans_SameName(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "slow:1", withUID("one")))
		b.awaitRunning("web")
	}, func(b *bed) {
		b.set(newPod("web", "web:2", withUID("two")))
		time.Sleep(10 * time.Second)
		require.Equal(b.t, []string{"slow:1"}, b.images("web"))
		b.eventually("the new container runs", func() bool { return strings.Join(b.images("web"), "") == "web:2" })
	})
}

// An earlier agent has started a pod of the same name, and at first the runtime cannot return the
// status of that pod. The agent must not conclude that no pod of the name is running.
func TestOrphans_SameNameWhenTheFirstInspectionFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, node, root := newStore(), newNode(t), t.TempDir()
		b := newBed(t, node, store, root)
		b.start()
		b.set(newPod("web", "slow:1", withUID("one")))
		b.awaitRunning("web")
		b.stop()
		require.NoError(t, node.Fail("PodSandboxStatus", fakecri.Fault{Err: errors.New("no answer")}))
		require.NoError(t, node.Fail("ContainerStatus", fakecri.Fault{Err: errors.New("no answer")}))
		b = newBed(t, node, store, root)
		b.start()
		b.set(newPod("web", "web:2", withUID("two")))
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"slow:1"}, b.images("web"))
		require.True(t, b.mayRun("one"), "a pod whose state in the runtime is unknown may be running")
		node.ClearFaults("")
		b.eventually("the new container runs", func() bool { return strings.Join(b.images("web"), "") == "web:2" })
		b.stop()
	})
}

// A pod that was found in the runtime is defined again while it terminates. It must start
// again.
func TestOrphans_DefinedAgain(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "slow:1"))
		b.awaitRunning("web")
	}, func(b *bed) {
		b.set()
		b.await("web", Ending)
		b.set(newPod("web", "web:2"))
		b.eventually("the pod runs again", func() bool { return strings.Join(b.images("web"), "") == "web:2" })
	})
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.orphan("other")
	}, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.eventually("the other sandbox is removed", func() bool { return b.sandboxes() == 1 })
	}, func(c *Config) { c.TakeOver = true })
}

func TestRemoval_BacksOff(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		require.NoError(b.t, b.node.Fail("RemovePodSandbox", fakecri.Fault{Err: errors.New("device busy")}))
		b.set()
		b.await("web", Ended)
		time.Sleep(10 * time.Minute)
		count := 0
		for _, c := range b.node.Calls() {
			if c.Method == "RemovePodSandbox" {
				count++
			}
		}
		require.InDelta(b.t, 14, count, 3)
		e, err := b.Explain(b.t.Context(), "uid-web")
		require.NoError(b.t, err)
		require.Equal(b.t, []Step{{What: "its remaining data is removed"}}, e.Next)
		require.False(b.t, b.CleanedUp("uid-web"))
		require.False(b.t, b.ContentRemovable("uid-web"))
		require.False(b.t, b.RuntimeRemovable("uid-web"))

		b.set(newPod("web", "web:2"))
		time.Sleep(time.Minute)
		require.Equal(b.t, Ended, b.await("web", Ended).State, "a restarted pod must start only after its previous sandbox has been removed")
		e, err = b.Explain(b.t.Context(), "uid-web")
		require.NoError(b.t, err)
		require.Equal(b.t, "it starts again when its earlier run is completely removed", e.Next[1].What)
		b.node.ClearFaults("RemovePodSandbox")
		b.awaitRunning("web")
	})
}

func TestHousekeeping_RemovesFilesOfUnknownPods(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "web:1", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
		}))
		b.awaitRunning("web")
		require.NoError(b.t, b.node.RemoveSilently("default/web"))
		require.DirExists(b.t, filepath.Join(b.root, "pods", "uid-web", "volumes"))
	}, func(b *bed) {
		b.set()
		time.Sleep(3 * time.Minute)
		require.NoDirExists(b.t, filepath.Join(b.root, "pods", "uid-web"))
		require.Empty(b.t, b.Pods())
	})
}

func TestStopPods_LeavesNothing(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "slow:1"), newPod("job", "job:1", restart(corev1.RestartPolicyNever)))
		b.awaitRunning("web")
		b.await("job", Ended)
		began := time.Now()
		require.NoError(b.t, b.StopPods(b.t.Context(), podworker.ShutdownConfig{}))
		require.InDelta(b.t, 20, time.Since(began).Seconds(), 3)
		require.Zero(b.t, b.sandboxes())
		b.set(newPod("web", "slow:1"), newPod("late", "web:1"))
		time.Sleep(time.Minute)
		require.Equal(b.t, Offered, b.await("late", Offered).State, "a static pod must wait")
		require.ErrorContains(b.t, b.StopPods(b.t.Context(), podworker.ShutdownConfig{}), "already")
		e, err := b.Explain(b.t.Context(), "uid-late")
		require.NoError(b.t, err)
		require.Contains(b.t, e.Why, "the pods of the node are being stopped")
	}, func(b *bed) {
		b.set(newPod("web", "slow:1"))
		b.awaitRunning("web")
	})
}

func TestStopPods_InStages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.give(podspec.SourceAPI, newPod("web", "slow:1"))
		b.awaitRunning("web")
		how := podworker.ShutdownConfig{ShutdownGracePeriod: time.Minute, ShutdownGracePeriodCriticalPods: 10 * time.Second}
		require.NoError(b.t, b.StopPods(b.t.Context(), how))
		p := b.await("web", Ended)
		require.Equal(b.t, podworker.ReasonTerminated, p.Spec.Status.Reason)
		require.Equal(b.t, 1, b.sandboxes(), "the sandbox must be kept because of the logs")
		b.give(podspec.SourceAPI, newPod("web", "slow:1"), newPod("late", "web:1"))
		require.Equal(b.t, podworker.ReasonNodeShutdown, b.await("late", Refused).Spec.Status.Reason)
		require.Error(b.t, b.StopPods(b.t.Context(), podworker.ShutdownConfig{ShutdownGracePeriod: -1}))
	}, twoSources(podspec.SourceFile, podspec.SourceAPI))
}

// A grace period of more seconds than a time.Duration can hold is a long grace period.
func TestStopPods_HugeGracePeriod(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "slow:1", withGrace(math.MaxInt64/2)))
		b.awaitRunning("web")
		began := time.Now()
		require.NoError(b.t, b.StopPods(b.t.Context(), podworker.ShutdownConfig{}))
		require.InDelta(b.t, 20, time.Since(began).Seconds(), 3)
	})
}

// A pod of a later stage ends and is removed before its stage begins.
func TestStopPods_PodIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		slow := newPod("slow", "slow:1")
		critical := newPod("critical", "stubborn:1", withGrace(10), func(p *corev1.Pod) { p.Spec.Priority = new(podspec.SystemCriticalPriority) })
		b.set(slow, critical)
		b.awaitRunning("slow")
		b.awaitRunning("critical")
		b.set(slow)
		how := podworker.ShutdownConfig{ShutdownGracePeriod: time.Minute, ShutdownGracePeriodCriticalPods: 30 * time.Second}
		require.NoError(b.t, b.StopPods(b.t.Context(), how))
		b.await("slow", Ended)
		b.awaitGone("critical")
	})
}

// The loop continues after a cancelled shutdown.
func TestStopPods_Cancelled(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]podworker.ShutdownConfig{
		"whole":  {},
		"stages": {ShutdownGracePeriod: time.Minute, ShutdownGracePeriodCriticalPods: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(b *bed) {
				pods := []*corev1.Pod{newPod("web", "web:1"), newPod("slow", "slow:1")}
				b.set(pods...)
				b.give(podspec.SourceAPI, newPod("api", "web:1"))
				for _, p := range []string{"web", "slow", "api"} {
					b.awaitRunning(p)
				}
				ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
				defer cancel()
				require.Error(b.t, b.StopPods(ctx, how))
				b.awaitRunning("web")
				b.awaitRunning("slow")
				b.set(append(pods, newPod("late", "web:1"))...)
				b.awaitRunning("late")
				api, _ := b.Pod("uid-api")
				require.Equal(b.t, corev1.PodFailed, api.Spec.Status.Phase, "an API pod must have failed permanently")
				require.False(b.t, api.State.MayRun())
			}, twoSources(podspec.SourceFile, podspec.SourceAPI), ordinaryPods)
		})
	}
}

// StopPods returns when Run stops, in any phase, so that a program can limit its duration.
func TestStopPods_EndsWithRun(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]string{"the runtime was never listed": "ListPodSandbox", "a container does not end": "StopContainer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, newNode(t), newStore(), t.TempDir())
				if call == "ListPodSandbox" {
					require.NoError(t, b.node.Fail(call, fakecri.Fault{Hang: true}))
				}
				b.start()
				b.set(newPod("web", "web:1"))
				if call == "StopContainer" {
					b.awaitRunning("web")
					require.NoError(t, b.node.Fail(call, fakecri.Fault{Hang: true}))
				}
				ended := make(chan error, 1)
				go func() { ended <- b.StopPods(t.Context(), podworker.ShutdownConfig{}) }()
				time.Sleep(time.Minute)
				b.stop()
				require.ErrorIs(t, <-ended, podworker.ErrStopped)
			})
		})
	}
}

func TestEvict_RemovesRemainingData(t *testing.T) {
	t.Parallel()
	inRestarts(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		pod, _ := b.Find("uid-web")
		evict := podworker.KillOptions{StatusFn: func(s *corev1.PodStatus) { s.Phase, s.Reason = corev1.PodFailed, "Evicted" }}
		require.NoError(b.t, b.Evict(b.t.Context(), pod, evict))
		p := b.await("web", Removed)
		require.Equal(b.t, "Evicted", p.Spec.Status.Reason)
		require.True(b.t, b.CleanedUp("uid-web"))
		require.Zero(b.t, b.sandboxes())
		b.SyncAll()
		time.Sleep(time.Minute)
		require.Equal(b.t, Removed, b.await("web", Removed).State)
		require.Equal(b.t, "Evicted", b.await("web", Removed).Spec.Status.Reason)
		b.set()
		b.awaitGone("web")
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
	}, func(*bed) {})
}
