package podloop

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// A pod's life without faults does not depend on housekeeping.
func TestLife_WithoutHousekeeping(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		p := b.awaitRunning("web")
		require.Equal(t, "file", p.Source)
		require.NotEmpty(t, p.Runtime.Containers)
		require.Equal(t, "offered, admitted", b.recorder.takeMoves("web"))

		b.set(newPod("web", "web:2"))
		b.eventually("a container with the new image runs", func() bool { return strings.Join(b.images("web"), "") == "web:2" })
		b.awaitRunning("web")

		b.set(newPod("web", "web:2", unsupported))
		b.eventually("the edit is refused", func() bool { return b.recorder.hasEvent("UnsupportedFields: The changed pod was not admitted") })
		require.Equal(t, []string{"web:2"}, b.images("web"), "the running version must continue to run")
		e, err := b.Explain(b.t.Context(), p.Spec.UID)
		require.NoError(t, err)
		require.Contains(t, strings.Join(e.Why, "\n"), "the change of its spec was not admitted, and the previous version keeps running: UnsupportedFields")
		require.Empty(t, b.recorder.takeMoves("web"))

		b.set()
		b.awaitGone("web")
		require.Zero(t, b.sandboxes())
		require.Equal(t, "ending, ended, gone", b.recorder.takeMoves("web"))
		_, published := b.recorder.published(p.Spec.UID)
		require.False(t, published)

		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		require.Equal(t, "offered, admitted", b.recorder.takeMoves("web"))
		b.set()
		b.set(newPod("web", "web:3")) // before the pod has terminated
		b.eventually("the pod runs again, with the new image", func() bool { return strings.Join(b.images("web"), "") == "web:3" })
		require.Equal(t, "ending, ended, offered, admitted", b.recorder.takeMoves("web"))
	}, noHousekeeping)
}

func TestLife_PodRunsToCompletion(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		job := newPod("job", "job:1", restart(corev1.RestartPolicyNever))
		b.set(job)
		b.await("job", Ended)
		b.eventually("the pod has succeeded", func() bool {
			c, ok := b.recorder.published(job.UID)
			return ok && c.New.Phase == corev1.PodSucceeded && c.Finished
		})
		require.Equal(t, 1, b.sandboxes(), "the containers must be kept because of their logs")
		time.Sleep(3 * time.Minute)
		require.Equal(t, Ended, b.await("job", Ended).State)

		edited := newPod("job", "job:1", restart(corev1.RestartPolicyNever), func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"x"} })
		b.set(edited)
		time.Sleep(time.Minute)
		require.Equal(t, edited.Spec, b.await("job", Ended).Spec.Spec, "the edit must be stored, and the pod must not run again")
		require.Equal(t, "offered, admitted, ending, ended", b.recorder.takeMoves("job"))

		b.set()
		b.awaitGone("job")
		require.Zero(t, b.sandboxes())
		b.set(job)
		b.await("job", Ended)
		require.Equal(t, "gone, offered, admitted, ending, ended", b.recorder.takeMoves("job"))
	}, noHousekeeping)
}

func TestLife_RefusedPodIsUndefinedAndDefinedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.places.Store(1)
		a, c := newPod("a", "web:1"), newPod("c", "web:1")
		b.set(a, c)
		b.awaitRunning("a")
		p := b.await("c", Refused)
		require.Equal(t, corev1.PodFailed, p.Spec.Status.Phase)
		require.Equal(t, "OutOfpods", p.Spec.Status.Reason)
		require.True(t, strings.HasPrefix(p.Spec.Status.Message, "Pod was rejected: "), p.Spec.Status.Message)
		require.True(t, b.recorder.hasEvent("OutOfpods"))

		for range 3 {
			b.set(a)
			b.awaitGone("c")
			b.set(a, c)
			b.await("c", Refused)
		}
		b.recorder.takeMoves("c")

		b.set(c) // a is removed, and the admission of c is retried after a has terminated
		p = b.awaitRunning("c")
		require.Empty(t, p.Spec.Status.Reason)
		require.Equal(t, "offered, admitted", b.recorder.takeMoves("c"))
	}, noHousekeeping, ordinaryPods)
}

func TestLife_AdmissionIsRetriedWhenTheNodeHasChanged(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.places.Store(1)
		b.set(newPod("other", "web:1"), newPod("a", "web:1"))
		b.await("a", Refused)
		b.NodeChanged()
		synctest.Wait()
		b.await("a", Refused)
		b.places.Store(2)
		time.Sleep(time.Minute)
		b.await("a", Refused)
		b.NodeChanged()
		b.awaitRunning("a")

		b.set(newPod("other", "web:1"), newPod("a", "web:1", unsupported))
		b.NodeChanged() // retries the admission of the edit
		synctest.Wait()
		require.Equal(t, []string{"web:1"}, b.images("a"))
	}, noHousekeeping, ordinaryPods)
}

func TestLife_SameName(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "slow:1", withUID("one")))
		b.awaitRunning("web")
		b.set(newPod("web", "web:2", withUID("two")))
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"slow:1"}, b.images("web"), "a pod must wait until the previous pod of the same name has terminated")
		b.eventually("the next pod runs", func() bool { return strings.Join(b.images("web"), "") == "web:2" })
		b.eventually("the previous pod is removed", func() bool { _, known := b.Pod("one"); return !known })
	}, noHousekeeping)
}

// If a pod is edited before it has started, because another pod of its name is terminating,
// no pod is terminated permanently.
func TestLife_SameNamePodThatNeverStarted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "slow:1", withUID("one")))
		b.awaitRunning("web")
		b.set(newPod("web", "web:2", withUID("two")))
		b.set(newPod("web", "web:3", withUID("three")))
		b.eventually("the last pod runs", func() bool { return strings.Join(b.images("web"), "") == "web:3" })
		b.eventually("the other pods are removed", func() bool { return len(b.Pods()) == 1 })
	})
}

func TestLife_UnsupportedVolumeOfAnEdit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1", unsupported))
		p := b.await("web", Refused)
		require.Contains(t, p.Spec.Status.Message, "volume")
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.set(newPod("web", "web:2", unsupported))
		time.Sleep(5 * time.Minute)
		require.Equal(t, []string{"web:1"}, b.images("web"))
		b.set(newPod("web", "web:2"))
		b.eventually("a container with the image of the valid edit runs", func() bool { return strings.Join(b.images("web"), "") == "web:2" })
	})
}

func TestLife_APIPod(t *testing.T) {
	t.Parallel()
	api := func(pods ...*corev1.Pod) []*corev1.Pod { return pods }
	inBubble(t, func(b *bed) {
		give := func(pods []*corev1.Pod) { b.give(podspec.SourceAPI, pods...) }
		give(nil)
		// The annotation must not make the pod a static pod.
		mask := func(p *corev1.Pod) { p.Annotations = map[string]string{podspec.SourceAnnotation: podspec.SourceFile} }
		give(api(newPod("web", "web:1", mask)))
		p := b.awaitRunning("web")
		require.Equal(t, podspec.SourceAPI, p.Source)
		require.False(t, podspec.IsStatic(p.Spec))

		give(api(newPod("web", "web:1", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })))
		require.Equal(t, "b", b.awaitRunning("web").Spec.Labels["a"])
		give(api(newPod("web", "web:2")))
		b.eventually("a container with the new image runs", func() bool { return strings.Join(b.images("web"), "") == "web:2" })
		b.recorder.takeMoves("web")

		give(api(newPod("web", "web:2", deletedIn(30))))
		b.await("web", Removed)
		require.Zero(t, b.sandboxes())
		require.Equal(t, "ending, ended, removed", b.recorder.takeMoves("web"))
		b.eventually("the sink knows", func() bool {
			c, ok := b.recorder.published(p.Spec.UID)
			return ok && c.Finished && c.Pod.DeletionTimestamp != nil
		})
		give(nil)
		b.awaitGone("web")
		require.Equal(t, "gone", b.recorder.takeMoves("web"))

		b.places.Store(1)
		give(api(newPod("first", "web:1"), newPod("late", "web:1")))
		b.await("late", Refused)
		b.places.Store(2)
		b.NodeChanged()
		time.Sleep(time.Minute)
		require.Equal(t, Refused, b.await("late", Refused).State, "the rejection of an API pod must be final")
		give(api(newPod("first", "web:1"), newPod("late", "web:1", deletedIn(0))))
		b.await("late", Removed)
		b.eventually("the sink knows", func() bool {
			c, ok := b.recorder.published("uid-late")
			return ok && c.Finished && c.Pod.DeletionTimestamp != nil
		})
	}, twoSources(podspec.SourceFile, podspec.SourceAPI), noHousekeeping)
}

// A shorter grace period takes effect while a pod terminates.
func TestLife_APIPodIsDeletedFaster(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.give(podspec.SourceAPI, newPod("web", "stubborn:1"))
		b.awaitRunning("web")
		b.give(podspec.SourceAPI, newPod("web", "stubborn:1", deletedIn(3600)))
		time.Sleep(time.Minute)
		require.Equal(t, Ending, b.await("web", Ending).State)
		began := time.Now()
		b.give(podspec.SourceAPI, newPod("web", "stubborn:1", deletedIn(5)))
		b.await("web", Removed)
		require.Less(t, time.Since(began), 15*time.Second)
	}, twoSources(podspec.SourceFile, podspec.SourceAPI))
}

func TestEvents_StateOfAPodIsUnknown(t *testing.T) {
	t.Parallel()
	var failed atomic.Int32
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		require.False(t, b.recorder.hasEvent("FailedSync"))
		require.NoError(t, b.node.Fail("ContainerStatus", fakecri.Fault{Err: errors.New("broken")}))
		require.NoError(t, b.node.Kill("default/web/main", 1))
		b.eventually("the event is recorded", func() bool { return b.recorder.hasEvent("FailedSync: error determining status: ") })
		require.True(t, b.recorder.hasEvent("broken"))
		require.Positive(t, failed.Load(), "the configured observer must be called too")
	}, func(c *Config) {
		c.Observers.Workers.SyncEnded = func(i podworker.SyncInfo) {
			if i.Err != nil {
				failed.Add(1)
			}
		}
	})
}

// lateSandboxes is a runtime that completes a cancelled RunPodSandbox after the caller has gone.
type lateSandboxes struct{ *fakecri.Node }

func (r lateSandboxes) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	<-ctx.Done()
	go func() {
		time.Sleep(5 * time.Second)
		_, _ = r.Node.RunPodSandbox(context.WithoutCancel(ctx), config, handler)
	}()
	return "", ctx.Err()
}

func TestLife_SandboxStartsAfterThePodHasEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		web := newPod("web", "web:1")
		b.set(web)
		time.Sleep(time.Second)
		require.NoError(t, b.Kill(b.t.Context(), web.UID, podworker.KillOptions{}))
		b.await("web", Ended)
		b.eventually("the late sandbox exists", func() bool { return b.sandboxes() == 1 })
		time.Sleep(time.Minute)
		b.set()
		b.awaitGone("web")
		require.Zero(t, b.sandboxes())
	}, func(c *Config) { c.Runtime = lateSandboxes{c.Runtime.(*fakecri.Node)} })
}

// The refusal of an API pod is final, even if the API server delivers a change of the pod before
// the pod's final status.
func TestLife_RefusedAPIPodChanges(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.places.Store(1)
		a, c := newPod("a", "web:1"), newPod("c", "web:1")
		b.give(podspec.SourceAPI, a, c)
		b.awaitRunning("a")
		b.await("c", Refused)
		changed := newPod("c", "web:1", func(p *corev1.Pod) { p.Labels = map[string]string{"tier": "web"} })
		b.give(podspec.SourceAPI, c)
		b.awaitGone("a") // so c would fit
		b.give(podspec.SourceAPI, changed)
		time.Sleep(time.Minute)
		p := b.await("c", Refused)
		require.Equal(t, corev1.PodFailed, p.Spec.Status.Phase)
		require.Equal(t, changed.Labels, p.Spec.Labels)
		require.Empty(t, b.images("c"))
	}, twoSources(podspec.SourceFile, podspec.SourceAPI))
}
