package cluster_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestPods_RunAndEndAsTheAPIServerDefinesThem(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"watch list": false, "old server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(b *bed) {
				b.noWatchList = old
				b.put("pods", newPod("web", "demo/web:1"))
				elsewhere := newPod("elsewhere", "demo/web:1")
				elsewhere.Spec.NodeName = "node2"
				b.put("pods", elsewhere)
				b.start()
				after(5 * time.Second)
				require.Equal(b.t, []string{"web"}, b.running())
				require.Equal(b.t, corev1.PodRunning, b.pod("web").Status.Phase)
				require.Equal(b.t, podspec.SourceAPI, b.spec(b.pod("web").UID).Annotations[podspec.SourceAnnotation])
				require.Empty(b.t, b.pod("web").Annotations, "the API server's object keeps its annotations")

				b.put("pods", newPod("job", "demo/job:1"))
				edit(b.api, "pods", "default", "job", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
				after(5 * time.Second)
				require.Equal(b.t, corev1.PodSucceeded, b.pod("job").Status.Phase)

				pod := b.pod("web")
				require.NoError(b.t, b.client().CoreV1().Pods("default").Delete(b.t.Context(), "web", metav1.DeleteOptions{}))
				after(10 * time.Second)
				require.Empty(b.t, b.running())
				_, exists := read[corev1.Pod](b.api, "pods", "default", "web")
				require.False(b.t, exists, "the agent deletes the object when nothing is left")
				require.Len(b.t, b.sent("delete pods default/web"), 2, "one by the user, one by the agent")
				_, known := b.agent.Pod(pod.UID)
				require.False(b.t, known)
			})
		})
	}
}

// The API server answers with errors while pods run, and the watch ends. No pod may stop.
func TestPods_ErrorsDeleteNothing(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"forbidden":   apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")),
		"unavailable": apierrors.NewServiceUnavailable("starting"),
		"not found":   apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(b *bed) {
				b.put("pods", newPod("web", "demo/web:1"))
				b.start()
				after(5 * time.Second)
				b.failing(func(_ *http.Request, q request) error {
					if q.resource == "pods" {
						return err
					}
					return nil
				})
				b.endWatches(true)
				after(5 * time.Minute)
				require.Equal(b.t, []string{"web"}, b.running())
				require.Equal(b.t, []string{"web admitted Running"}, b.states())

				b.put("pods", newPod("second", "demo/web:1"))
				b.failing(nil)
				after(2 * time.Minute)
				require.Equal(b.t, []string{"second", "web"}, b.running())

				b.remove("pods", "default", "web")
				after(10 * time.Second)
				require.Equal(b.t, []string{"second"}, b.running())
			})
		})
	}
}

// A pod is deleted while the watch is down, and the history of the API server is compacted.
func TestPods_CompactedHistory(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("old", "demo/web:1"))
		b.put("pods", newPod("kept", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		b.failing(func(_ *http.Request, q request) error {
			if q.verb == "watch" {
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		})
		b.endWatches(false)
		after(time.Second)
		b.remove("pods", "default", "old")
		b.put("pods", newPod("old", "demo/web:1")) // another pod of the same name
		b.endWatches(true)
		b.failing(nil)
		after(2 * time.Minute)
		require.Equal(b.t, []string{"kept", "old"}, b.running())
		_, known := b.agent.Pod(b.pod("old").UID)
		require.True(b.t, known, "the new pod runs, not the old one")
	})
}

// A restarted agent finds pods of its predecessor. Until the first complete list it stops nothing.
func TestPods_UnsyncedDeletesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		b.stop()
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "pods" {
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		})
		b.start()
		after(5 * time.Minute)
		require.Equal(b.t, []string{"web"}, b.running())

		b.remove("pods", "default", "web")
		b.failing(nil)
		after(2 * time.Minute)
		require.Empty(b.t, b.running(), "a complete list without pods is the truth")
	})
}

// The second page of a list fails.
func TestPods_PartOfAListDeletesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.noWatchList = true
		b.put("pods", newPod("one", "demo/web:1"))
		b.put("pods", newPod("two", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		b.paged(1)
		pages := 0
		b.failing(func(r *http.Request, q request) error {
			if q.resource == "pods" && q.verb == "list" && r.URL.Query().Get("continue") != "" {
				pages++
				return apierrors.NewInternalError(errors.New("no second page"))
			}
			return nil
		})
		b.endWatches(true)
		after(2 * time.Minute)
		require.NotZero(b.t, pages)
		require.Equal(b.t, []string{"one", "two"}, b.running())
		b.failing(nil)
		b.remove("pods", "default", "one")
		after(2 * time.Minute)
		require.Equal(b.t, []string{"two"}, b.running())
	})
}

func TestPods_EveryChangeIsDelivered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := newPod("web", "demo/slow:1")
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		b.put("pods", pod)
		b.start()
		after(5 * time.Second)
		uid := b.pod("web").UID
		require.Empty(b.t, b.spec(uid).ManagedFields, "they take memory and are not needed")
		change := func(f func(*corev1.Pod)) *corev1.Pod {
			edit(b.api, "pods", "default", "web", f)
			after(2 * time.Second)
			return b.spec(uid)
		}
		require.Equal(b.t, "b", change(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }).Labels["a"])
		require.Equal(b.t, "d", change(func(p *corev1.Pod) { p.Annotations = map[string]string{"c": "d"} }).Annotations["c"])
		require.Len(b.t, change(func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "demo/web:1"}}}
		}).Spec.EphemeralContainers, 1)
		require.Equal(b.t, []string{"web", "web"}, b.running(), "the ephemeral container runs")

		deleted := change(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(10))
		})
		require.NotNil(b.t, deleted.DeletionTimestamp)
		require.Equal(b.t, int64(10), *deleted.DeletionGracePeriodSeconds)
		after(10 * time.Second)
		require.Empty(b.t, b.running())
	})
}

// A finalizer keeps the object of a deleted pod at the API server after the agent has removed the
// pod.
func TestPods_FinalizerHoldsTheObject(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		edit(b.api, "pods", "default", "web", func(p *corev1.Pod) {
			p.Finalizers = []string{"example.com/hold"}
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(1))
		})
		after(10 * time.Minute)
		require.Empty(b.t, b.running())
		require.Equal(b.t, corev1.PodSucceeded, b.pod("web").Status.Phase)
		require.Len(b.t, b.sent("delete pods"), 1)
		b.remove("pods", "default", "web")
		after(10 * time.Second)
		require.Empty(b.t, b.states())
	})
}

func TestPods_MirrorsAreNotRun(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		mirror := newPod("static", "demo/web:1")
		mirror.Annotations = map[string]string{podspec.MirrorAnnotation: "hash", podspec.SourceAnnotation: podspec.SourceFile}
		b.put("pods", mirror)
		pretender := newPod("pretender", "demo/web:1")
		pretender.Annotations = map[string]string{podspec.SourceAnnotation: podspec.SourceFile}
		b.put("pods", pretender)
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, []string{"pretender"}, b.running())
		require.False(b.t, podspec.IsStatic(b.spec(b.pod("pretender").UID)), "an annotation does not make a pod static")
	})
}

// The reflector of client-go waits up to 30 s after a refused connection, even if it must stop.
func TestRun_StopsAtOnceWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.setAway(true)
		b.start()
		after(5 * time.Minute)
		began := time.Now()
		b.stop()
		require.Less(b.t, time.Since(began), 2*time.Second)
	})
}

// The first sync of a pod must not fail because the services or runtime classes arrive later. A
// node without permission to list them runs its pods all the same.
func TestPods_StartAfterTheirServicesAndRuntimeClasses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "runc"})
		pod := newPod("web", "demo/web:1")
		pod.Spec.RuntimeClassName = new("sandboxed")
		b.put("pods", pod)
		b.start()
		require.Equal(b.t, []string{"web"}, b.running())
		require.Zero(b.t, b.logged("sync of a pod failed"))
		b.stop()

		b.failing(func(_ *http.Request, q request) error {
			if q.resource != "runtimeclasses" {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: q.resource}, "", errors.New("no permission"))
		})
		b.put("pods", newPod("other", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		require.Contains(b.t, b.running(), "other")
		require.Equal(b.t, 1, b.logged("before all services and runtime classes are known"))
	})
}
