package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// allocator returns one injection for each container.
type allocator struct {
	name      string
	injection resources.Injection
	admit     func(lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult

	mu       sync.Mutex
	admitted map[types.UID]bool
	released []types.UID
	onDone   func()
}

func (a *allocator) Name() string                                      { return a.name }
func (a *allocator) Restore(context.Context, []*podcache.Status) error { return nil }

func (a *allocator) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.admitted == nil {
		a.admitted = map[types.UID]bool{}
	}
	a.admitted[attrs.Pod.UID] = true
	if a.admit != nil {
		return a.admit(attrs)
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

func (a *allocator) Container(context.Context, resources.ContainerRequest) (resources.Injection, error) {
	return a.injection, nil
}

func (a *allocator) Release(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released = append(a.released, pod)
	if a.onDone != nil {
		a.onDone()
	}
}

// If two allocators set the same annotation, the container is not created, and its message names
// both allocators.
func TestAgent_ConflictingAllocators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newPod("web", "demo/web:1")
		c := config(newNode(t), newSource(web).file())
		for _, name := range []string{"cpus", "devices"} {
			c.Allocators = append(c.Allocators, &allocator{name: name, injection: resources.Injection{Annotations: map[string]string{"example.com/share": name}}})
		}
		a := start(t, c)
		after(10 * time.Second)
		p, _ := a.Pod(web.UID)
		waiting := p.Spec.Status.ContainerStatuses[0].State.Waiting
		require.NotNil(t, waiting)
		require.Equal(t, "CreateContainerConfigError", waiting.Reason)
		for _, word := range []string{"cpus", "devices", "example.com/share"} {
			require.Contains(t, waiting.Message, word)
		}
	})
}

// Sync may be called from inside every hook, with locks held.
func TestAgent_SyncFromInsideHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, pods := newPod("web", "demo/web:1"), newSource()
		pods.define(web)
		var a *agent.Agent
		devices := &allocator{name: "devices", onDone: func() { a.SyncAll() }}
		devices.admit = func(attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
			a.Sync(attrs.Pod.UID)
			return lifecycle.PodAdmitResult{Admit: true}
		}
		c := config(newNode(t), pods.file())
		c.Allocators = []resources.Allocator{devices}
		var once sync.Once // each Sync causes another publication of the status
		c.Statuses = sink(func(change status.Change) { once.Do(func() { a.Sync(change.Pod.UID) }) })
		a, err := agent.New(c)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		after(10 * time.Second)
		p, _ := a.Pod(web.UID)
		require.Equal(t, corev1.PodRunning, p.Spec.Status.Phase)
		pods.define()
		after(time.Minute)
		require.Empty(t, a.Pods())
		require.Equal(t, []types.UID{web.UID}, devices.released)
		stop()
		require.NoError(t, <-done)
	})
}

// sink is a status.Sink of one function.
type sink func(status.Change)

func (s sink) Publish(_ context.Context, c status.Change) error {
	s(c)
	return nil
}
func (sink) Forget(types.UID) {}

// A pod of the API server cannot become a static pod by its annotation.
func TestAgent_APIPodWithStaticPodAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newPod("web", "demo/web:1")
		web.Annotations = map[string]string{podspec.SourceAnnotation: podspec.SourceFile}
		c := config(newNode(t), newSource(web).api())
		c.Admission = []lifecycle.NamedHandler{{Name: "no", Handler: lifecycle.AdmitFunc(
			func(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
				if podspec.IsStatic(attrs.Pod) {
					return lifecycle.PodAdmitResult{Admit: true}
				}
				return lifecycle.PodAdmitResult{Reason: "NotHere", Message: "not on this node"}
			})}}
		a := start(t, c)
		after(10 * time.Second)
		require.Equal(t, []string{"web refused Failed"}, a.phases())
	})
}

// Admission counts the resources that NodeStatus adds. A pod that requests such a resource
// needs an allocator.
func TestAgent_ExtendedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fpga = corev1.ResourceName("example.com/fpga")
		ask := func(name string) *corev1.Pod {
			p := newPod(name, "demo/web:1")
			list := corev1.ResourceList{fpga: *one()}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
			return p
		}
		c := config(newNode(t), newSource(ask("first"), ask("second")).file())
		c.NodeStatus = func(n *corev1.Node) {
			n.Status.Capacity[fpga], n.Status.Allocatable[fpga] = *one(), *one()
		}
		c.Allocators, c.StaticPods = []resources.Allocator{&allocator{name: "fpgas"}}, agent.OrdinaryStaticPods
		a := start(t, c)
		after(10 * time.Second)
		f, _ := a.Pod("uid-first")
		require.Equal(t, []string{"first admitted Running", "second refused Failed"}, a.phases(), f.Spec.Status.Message)
		p, _ := a.Pod("uid-second")
		require.Equal(t, "OutOfexample.com/fpga", p.Spec.Status.Reason)
	})
}

// A pod that needs a cluster lookup is rejected if the lookup is not configured. The message
// names the missing field.
func TestAgent_PodThatNeedsClusterLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("web", "demo/web:1")
		p.Spec.Volumes = []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/secret"}}
		c := config(newNode(t), newSource(p).file())
		c.Root = t.TempDir()
		a := start(t, c)
		after(10 * time.Second)
		require.Equal(t, []string{"web refused Failed"}, a.phases())
		now, _ := a.Pod(p.UID)
		require.Contains(t, now.Spec.Status.Message, "secret")
	})
}
