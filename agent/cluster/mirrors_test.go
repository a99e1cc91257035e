package cluster_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// static is a source of static pods.
type static struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	unread  bool // the source does not know its pods yet
	changed chan struct{}
}

// withStatic adds a source of static pods to the next agent.
func (b *bed) withStatic(pods ...*corev1.Pod) *static {
	s := &static{pods: pods, changed: make(chan struct{}, 1)}
	b.config = func(c *agent.Config) {
		c.Sources = []agent.Source{{Name: podspec.SourceFile, Run: s.run}}
	}
	return s
}

func (s *static) run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	for {
		s.mu.Lock()
		pods, unread := s.pods, s.unread
		s.mu.Unlock()
		if !unread {
			set(ctx, pods)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// define replaces the pods of the source.
func (s *static) define(pods ...*corev1.Pod) {
	s.mu.Lock()
	s.pods, s.unread = pods, false
	s.mu.Unlock()
	s.changed <- struct{}{}
}

// staticPod returns a static pod as package podsource returns it.
func staticPod(name, image, hash string) *corev1.Pod {
	p := newPod(name, image)
	p.UID = types.UID("static-" + name + "-" + hash)
	p.Annotations = map[string]string{podspec.HashAnnotation: hash, podspec.SourceAnnotation: podspec.SourceFile}
	return p
}

func TestMirrors_ShowStaticPods(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		source := b.withStatic(staticPod("proxy", "demo/web:1", "h1"))
		b.start()
		after(10 * time.Second)
		mirror := b.pod("proxy")
		require.Equal(b.t, "h1", mirror.Annotations[podspec.MirrorAnnotation])
		require.Equal(b.t, corev1.PodRunning, mirror.Status.Phase)
		require.Equal(b.t, b.node().UID, mirror.OwnerReferences[0].UID)
		require.Equal(b.t, []string{"proxy"}, b.running())
		require.Len(b.t, b.sent("create pods"), 1)

		// Another version of the manifest.
		source.define(staticPod("proxy", "demo/job:1", "h2"))
		after(10 * time.Second)
		require.Equal(b.t, "h2", b.pod("proxy").Annotations[podspec.MirrorAnnotation])
		require.NotEqual(b.t, mirror.UID, b.pod("proxy").UID)

		source.define()
		after(time.Minute)
		_, exists := read[corev1.Pod](b.api, "pods", "default", "proxy")
		require.False(b.t, exists)
		require.Empty(b.t, b.running())
	})
}

// A user deletes a mirror pod: the static pod runs on, and its mirror is created again.
func TestMirrors_DeletedMirrorIsCreatedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.withStatic(staticPod("proxy", "demo/web:1", "h1"))
		b.start()
		after(10 * time.Second)
		first := b.pod("proxy")
		require.NoError(b.t, b.client().CoreV1().Pods("default").Delete(b.t.Context(), "proxy", metav1.DeleteOptions{}))
		after(10 * time.Second)
		require.NotEqual(b.t, first.UID, b.pod("proxy").UID)
		require.Nil(b.t, b.pod("proxy").DeletionTimestamp)
		require.Equal(b.t, corev1.PodRunning, b.pod("proxy").Status.Phase, "the new mirror gets the status")
		require.Equal(b.t, int32(0), b.pod("proxy").Status.ContainerStatuses[0].RestartCount)
		require.Equal(b.t, first.Status.ContainerStatuses[0].ContainerID, b.pod("proxy").Status.ContainerStatuses[0].ContainerID)
	})
}

// Another client overwrites the status of a mirror pod.
func TestMirrors_StatusIsCorrected(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.withStatic(staticPod("proxy", "demo/web:1", "h1"))
		b.start()
		after(10 * time.Second)
		edit(b.api, "pods", "default", "proxy", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} })
		after(10 * time.Second)
		require.Equal(b.t, corev1.PodRunning, b.pod("proxy").Status.Phase)
		b.forget()
		after(10 * time.Minute)
		require.Empty(b.t, b.sent("patch pods"), "an echo of our own patch causes no other patch")
	})
}

// A mirror without a static pod is deleted, but only when all sources of static pods are known.
func TestMirrors_OrphansAreDeletedWhenAllSourcesAreKnown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		source := b.withStatic()
		source.unread = true
		for _, name := range []string{"gone", "kept"} {
			mirror := newPod(name, "demo/web:1")
			mirror.Annotations = map[string]string{podspec.MirrorAnnotation: "h1", podspec.HashAnnotation: "h1", podspec.SourceAnnotation: podspec.SourceFile}
			b.put("pods", mirror)
		}
		b.start()
		after(10 * time.Minute)
		require.Empty(b.t, b.sent("delete pods"))
		source.define(staticPod("kept", "demo/web:1", "h1"))
		after(10 * time.Second)
		_, exists := read[corev1.Pod](b.api, "pods", "default", "gone")
		require.False(b.t, exists)
		require.Equal(b.t, corev1.PodRunning, b.pod("kept").Status.Phase)
		require.Equal(b.t, []string{"delete pods default/gone"}, b.sent("delete pods"))
	})
}

// The mirror of a static pod does not wait for other sources, as with the kubelet.
func TestMirrors_AreCreatedWhileAnotherSourceIsUnknown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.withStatic(staticPod("proxy", "demo/web:1", "h1"))
		file := b.config
		other := &static{unread: true}
		b.config = func(c *agent.Config) {
			file(c)
			c.Sources = append(c.Sources, agent.Source{Name: podspec.SourceHTTP, Run: other.run})
		}
		orphan := newPod("orphan", "demo/web:1")
		orphan.Annotations = map[string]string{podspec.MirrorAnnotation: "h1", podspec.HashAnnotation: "h1", podspec.SourceAnnotation: podspec.SourceHTTP}
		b.put("pods", orphan)
		b.start()
		after(time.Minute)
		require.Equal(b.t, []string{"proxy"}, b.running())
		require.Equal(b.t, corev1.PodRunning, b.pod("proxy").Status.Phase)
		require.Empty(b.t, b.sent("delete pods"), "the unknown source may define the pod of this mirror")
	})
}

// The mirror of a pod whose manifest was removed stays until the pod has stopped.
func TestMirrors_StayWhileTheirPodStops(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := staticPod("proxy", "demo/stubborn:1", "h1")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
		source := b.withStatic(pod)
		b.start()
		after(10 * time.Second)
		source.define()
		after(30 * time.Second)
		require.Equal(b.t, corev1.PodRunning, b.pod("proxy").Status.Phase)
		after(time.Minute)
		_, exists := read[corev1.Pod](b.api, "pods", "default", "proxy")
		require.False(b.t, exists)
	})
}

func TestMirrors_FailuresAreRetried(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.withStatic(staticPod("proxy", "demo/web:1", "h1"))
		b.failing(func(_ *http.Request, q request) error {
			if q.verb == "create" && q.resource == "pods" {
				return errors.New("etcd is down")
			}
			return nil
		})
		b.start()
		after(time.Minute)
		require.Equal(b.t, []string{"proxy"}, b.running(), "static pods need no API server")
		require.InDelta(b.t, 6, len(b.sent("create pods")), 1)
		require.Positive(b.t, b.logged("could not create or delete mirror pods, will retry"))
		b.failing(nil)
		after(11 * time.Second)
		require.Equal(b.t, corev1.PodRunning, b.pod("proxy").Status.Phase)
	})
}

// A static pod does not wait for the API server, because the static pod may itself run the API
// server.
func TestMirrors_StaticPodsStartWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		static := newPod("apiserver-node1", "demo/web:1")
		static.UID = "static"
		b.withStatic(static)
		b.setAway(true)
		b.start()
		after(10 * time.Second)
		require.Equal(b.t, []string{"apiserver-node1"}, b.running())
	})
}
