package podloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

func newStore() *state.MemoryStore { return state.Memory() }

// allocator records its calls.
type allocator struct {
	name   string
	refuse string // name of a pod that it rejects
	fail   error  // error of Restore
	gate   chan struct{}
	called func(types.UID)

	mu    sync.Mutex
	calls []string
}

func (a *allocator) note(format string, args ...any) {
	a.mu.Lock()
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
	a.mu.Unlock()
	if a.called != nil {
		a.called("")
	}
}

func (a *allocator) log() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.calls, ", ")
}

func (a *allocator) Name() string { return a.name }

func (a *allocator) Restore(_ context.Context, found []*podcache.Status) error {
	for _, s := range found {
		a.note("restore %s with %d containers", s.Name, len(s.Containers))
	}
	return a.fail
}

func (a *allocator) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	a.note("admit %s", attrs.Pod.Name)
	if a.gate != nil {
		<-a.gate
	}
	if attrs.Pod.Name == a.refuse {
		return lifecycle.PodAdmitResult{Reason: "NoDevices", Message: "all are taken"}
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

func (a *allocator) Container(context.Context, resources.ContainerRequest) (resources.Injection, error) {
	return resources.Injection{Env: map[string]string{strings.ToUpper(a.name): "1"}}, nil
}

func (a *allocator) Release(uid types.UID) {
	a.note("release %s", strings.TrimPrefix(string(uid), "uid-"))
}

func allocators(all ...resources.Allocator) func(*Config) {
	return func(c *Config) { c.Allocators = all }
}

// callingSink calls the loop from Publish.
type callingSink struct{ called func(types.UID) }

func (s callingSink) Publish(_ context.Context, c status.Change) error {
	s.called(c.Pod.UID)
	return nil
}
func (s callingSink) Forget(uid types.UID) { s.called(uid) }

// orphan starts a container that no source defines.
func (b *bed) orphan(name string) {
	b.t.Helper()
	labels := map[string]string{
		crilabels.PodName: name, crilabels.PodNamespace: "default", crilabels.PodUID: "uid-" + name, crilabels.Agent: "agent",
		crilabels.ContainerName: "main",
	}
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, Labels: labels}
	ctx := b.t.Context()
	id, err := b.node.RunPodSandbox(ctx, sandbox, "")
	require.NoError(b.t, err)
	image := &runtimeapi.ImageSpec{Image: "web:1"}
	_, err = b.node.PullImage(ctx, image, nil, sandbox)
	require.NoError(b.t, err)
	c, err := b.node.CreateContainer(ctx, id, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: image, Labels: labels,
	}, sandbox)
	require.NoError(b.t, err)
	require.NoError(b.t, b.node.StartContainer(ctx, c))
}

func TestAllocators_ReleaseIsCalledOncePerAdmission(t *testing.T) {
	t.Parallel()
	cpus := &allocator{name: "cpus"}
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1"), newPod("job", "job:1", restart(corev1.RestartPolicyNever)))
		b.await("job", Ended)
		require.Equal(t, "admit web, admit job, release job", cpus.log())
		b.set()
		b.awaitGone("web")
		b.awaitGone("job")
		require.Equal(t, "admit web, admit job, release job, release web", cpus.log())
	}, allocators(cpus))
}

func TestAllocators_RefusedByLaterAllocator(t *testing.T) {
	t.Parallel()
	cpus, devices, late := &allocator{name: "cpus"}, &allocator{name: "devices", refuse: "gpu"}, &allocator{name: "late"}
	inBubble(t, func(b *bed) {
		b.set(newPod("gpu", "web:1"))
		require.Equal(t, "NoDevices", b.await("gpu", Refused).Spec.Status.Reason)
		require.Equal(t, "admit gpu, release gpu", cpus.log())
		require.Equal(t, "admit gpu", devices.log())
		require.Empty(t, late.log())
		b.set()
		b.awaitGone("gpu")
		require.Equal(t, "admit gpu, release gpu", cpus.log(), "a rejected pod must have nothing to release")
	}, allocators(cpus, devices, late))
}

// The running version keeps its allocation when an edit is rejected.
func TestAllocators_RefusedEdit(t *testing.T) {
	t.Parallel()
	cpus, devices := &allocator{name: "cpus"}, &allocator{name: "devices"}
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		devices.refuse = "web"
		b.set(newPod("web", "web:2"))
		b.eventually("the edit is refused", func() bool { return b.recorder.hasEvent("NoDevices") })
		require.Equal(t, "admit web, admit web", cpus.log())
		require.Equal(t, []string{"web:1"}, b.images("web"))
		b.set()
		b.awaitGone("web")
		require.Equal(t, "admit web, admit web, release web", cpus.log())
	}, allocators(cpus, devices))
}

// A pod terminates while an allocator hangs: the release waits in the admission queue, but
// the pod's worker does not wait.
func TestAllocators_ReleaseWaitsForHangingAdmit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cpus := &allocator{name: "cpus"}
		b := newBed(t, newNode(t), newStore(), t.TempDir(), allocators(cpus))
		b.start()
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		cpus.gate = make(chan struct{})
		b.set(newPod("hang", "web:1"))
		b.awaitGone("web")
		require.Equal(t, "admit web, admit hang", cpus.log())
		close(cpus.gate)
		b.awaitRunning("hang")
		require.Equal(t, "admit web, admit hang, release web", cpus.log())
		b.stop()
	})
}

// A pod that is removed during its admission has no allocation afterwards.
func TestAllocators_PodRemovedDuringAdmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cpus := &allocator{name: "cpus", gate: make(chan struct{})}
		b := newBed(t, newNode(t), newStore(), t.TempDir(), allocators(cpus))
		b.start()
		b.set(newPod("web", "web:1"))
		b.set()
		b.awaitGone("web")
		b.set(newPod("web", "web:2"))
		close(cpus.gate)
		b.awaitRunning("web")
		require.Equal(t, "admit web, release web, admit web", cpus.log())
		b.stop()
	})
}

func TestAllocators_Restore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, node, root := newStore(), newNode(t), t.TempDir()
		b := newBed(t, node, store, root)
		b.start()
		pods := []*corev1.Pod{newPod("web", "web:1"), newPod("db", "web:1"), newPod("job", "job:1", restart(corev1.RestartPolicyNever))}
		b.set(pods...)
		b.awaitRunning("web")
		b.awaitRunning("db")
		b.await("job", Ended)
		b.stop()

		cpus := &allocator{name: "cpus"}
		b = newBed(t, node, store, root, allocators(cpus))
		b.start()
		b.set(append(pods, newPod("more", "web:1"))...)
		b.awaitRunning("more")
		require.Equal(t, "restore db with 1 containers, restore web with 1 containers, admit web, admit db, admit more", cpus.log(),
			"terminated pods must have no allocation, and running pods must be restored first")
		require.Equal(t, "offered, admitted (adopted)", b.recorder.takeMoves("web"))
		b.stop()

		cpus = &allocator{name: "cpus", fail: errors.New("the annotation is damaged")}
		b = newBed(t, node, store, root, allocators(cpus))
		b.start()
		require.EqualError(t, <-b.ended, "restore allocator cpus: the annotation is damaged")
		b.cancel()
	})
}

// No allocator is restored before the runtime could be listed.
func TestAllocators_RestoreWaitsForTheRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, node, root := newStore(), newNode(t), t.TempDir()
		b := newBed(t, node, store, root)
		b.start()
		b.set(newPod("web", "web:1"))
		b.awaitRunning("web")
		b.stop()

		node.Restart(20 * time.Second)
		cpus := &allocator{name: "cpus"}
		b = newBed(t, node, store, root, allocators(cpus))
		b.start()
		b.set(newPod("web", "web:1"))
		time.Sleep(15 * time.Second)
		require.Empty(t, cpus.log())
		require.ErrorContains(t, b.Ready(), "the first relist of the runtime is not complete yet")
		b.awaitRunning("web")
		require.True(t, strings.HasPrefix(cpus.log(), "restore web with 1 containers, admit web"), cpus.log())
		require.NoError(t, b.Ready())
		b.stop()
	})
}

func allocatorsOf(all ...resources.Allocator) []resources.Allocator { return all }
