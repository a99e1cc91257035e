package status_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

// pods and clientset have the methods of client-go's types that matter here. The methods
// of PodClient must have exactly the same signatures.
type (
	pods interface {
		Create(ctx context.Context, pod *corev1.Pod, opts metav1.CreateOptions) (*corev1.Pod, error)
		UpdateStatus(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error)
		Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
		Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
		Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
		Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
			subresources ...string) (result *corev1.Pod, err error)
	}
	clientset interface{ CoreV1() core }
	core      interface{ Pods(namespace string) pods }
)

func TestAPIServer_ClientGoFits(t *testing.T) {
	t.Parallel()
	config := func(cs clientset) status.APIServerConfig {
		return status.APIServerConfig{Pods: func(ns string) status.PodClient { return cs.CoreV1().Pods(ns) }}
	}
	require.NoError(t, config(nil).Validate())
	_, err := status.NewAPIServer(status.APIServerConfig{})
	require.ErrorContains(t, err, "field Pods is required")
}

func TestAPIServer_ChangeIsOnePatch(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	n := newNode(t, a)
	n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	n.SetPodStatus(seen, simple("Running", "False"))
	require.NoError(t, n.Sync(t.Context()))
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0", "patch p0"}, a.asked(), "there must be no GET and no empty patch")
	require.Equal(t, corev1.ConditionFalse, status.Condition(a.pod("p0").Status.Conditions, corev1.PodReady).Status)
	require.Positive(t, n.bytes)
	require.Len(t, n.published, 3)
}

func TestAPIServer_PodOfUnknownVersionNeedsAGet(t *testing.T) {
	t.Parallel()
	pod := numbered(1)[0]
	n := newNode(t, newAPI(pod))
	n.SetPodStatus(pod, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"get p0", "patch p0"}, n.api.asked())
}

func TestAPIServer_OtherWritersBetweenPatches(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	n := newNode(t, a)
	gate := corev1.PodCondition{Type: "example.com/gate", Status: "True"}
	a.edit("p0", func(pod *corev1.Pod) { pod.Status.Conditions = append(pod.Status.Conditions, gate) })
	n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0", "get p0", "patch p0"}, a.asked())
	require.Contains(t, a.pod("p0").Status.Conditions, gate, "another writer's condition must be kept")

	shown := a.edit("p0", func(pod *corev1.Pod) { pod.Labels = map[string]string{"edited": ""} })
	n.sink.RecordObject(seen.UID, shown)
	n.sink.RecordObject(seen.UID, seen) // this object is older than the known object, and is ignored
	n.SetPodStatus(seen, simple("Running", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked(), "with an object from a watch, no GET is necessary")

	shown = a.edit("p0", func(pod *corev1.Pod) { pod.Status.Phase = "Pending" })
	n.sink.RecordObject(seen.UID, shown)
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, corev1.PodRunning, a.pod("p0").Status.Phase, "changes of other writers must be corrected")
}

func TestAPIServer_VersionsThatAreNotNumbers(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	n := newNode(t, a)
	odd := seen.DeepCopy()
	odd.ResourceVersion = "odd"
	n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	n.sink.RecordObject(seen.UID, odd)
	n.SetPodStatus(seen, simple("Running", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0", "patch p0"}, a.asked(), "two patches of the first object")
}

// TestAPIServer_RestoredFromAnOlderState checks that the status is published again to a server whose
// objects have gone back to older versions.
func TestAPIServer_RestoredFromAnOlderState(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	n := newNode(t, a)
	n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked())

	n.sink.RecordList([]*corev1.Pod{a.pod("p0"), numbered(2)[1]})
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Empty(t, a.asked(), "the list has the known object")

	a.pods["ns/p0"] = seen.DeepCopy()
	n.sink.RecordList([]*corev1.Pod{seen})
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"get p0", "patch p0"}, a.asked())
	require.Equal(t, corev1.PodRunning, a.pod("p0").Status.Phase)
}

// TestAPIServer_CorrectionsOfAFightAreRare checks that two clients that overwrite the status of each
// other do not send requests without a pause.
func TestAPIServer_CorrectionsOfAFightAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		seen := a.put(numbered(1)[0])
		n := newNode(t, a)
		n.SetPodStatus(seen, simple("Running", "True"))
		require.NoError(t, n.Sync(t.Context()))
		overwrite := func() {
			changed := a.edit("p0", func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Message = "Pending", pod.Status.Message+"!" })
			require.True(t, n.sink.RecordObject(seen.UID, changed))
			require.False(t, n.sink.RecordObject(seen.UID, changed))
			n.Trigger(seen.UID)
		}
		overwrite()
		require.NoError(t, n.Sync(t.Context()))
		require.Equal(t, []string{"patch p0", "patch p0"}, a.asked(), "the first correction follows at once")
		for range 5 {
			overwrite()
			require.ErrorIs(t, n.Sync(t.Context()), status.ErrCorrectionDeferred)
		}
		require.Empty(t, a.asked())
		time.Sleep(10 * time.Second)
		require.NoError(t, n.Sync(t.Context()))
		require.Equal(t, []string{"patch p0"}, a.asked())
		require.Equal(t, corev1.PodRunning, a.pod("p0").Status.Phase)

		overwrite()
		n.SetPodStatus(seen, simple("Running", "False"))
		require.NoError(t, n.Sync(t.Context()))
		require.Equal(t, []string{"patch p0"}, a.asked(), "a change is published at once")
	})
}

func TestAPIServer_PersistentConflictIsAnError(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	n := newNode(t, a)
	a.before = func(_ context.Context, verb, _ string) error {
		if verb == "patch" {
			a.edit("p0", func(*corev1.Pod) {})
		}
		return nil
	}
	n.SetPodStatus(seen, simple("Running", "True"))
	require.ErrorContains(t, n.Sync(t.Context()), "conflict with other writers in each of 3 attempts")
	require.Len(t, a.asked(), 5)
}

// TestAPIServer_ConflictIsKeptUntilTheNextGet checks this case: the object has changed, the
// GET fails, and the reported status changes back to the status of the old object.
func TestAPIServer_ConflictIsKeptUntilTheNextGet(t *testing.T) {
	t.Parallel()
	a := newAPI()
	pod := numbered(1)[0]
	pod.Status = simple("Running", "True")
	seen := a.put(pod)
	n := newNode(t, a)
	s, _ := n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	a.edit("p0", func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = "False" })
	a.before = func(_ context.Context, verb, _ string) error {
		if verb == "get" {
			a.before = nil
			return errors.New("connection refused")
		}
		return nil
	}
	n.SetPodStatus(seen, simple("Pending", "True"))
	require.Error(t, n.Sync(t.Context()))
	n.SetPodStatus(seen, s)
	require.NoError(t, n.Flush(t.Context()))
	require.Equal(t, corev1.ConditionTrue, status.Condition(a.pod("p0").Status.Conditions, corev1.PodReady).Status)
}

func TestAPIServer_MissingPodNeedsOneGet(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	n := newNode(t, a)
	a.remove("p0")
	for range 5 {
		n.SetPodStatus(seen, simple("Running", "True"))
		n.SetPodStatus(seen, simple("Running", "False"))
		require.NoError(t, n.Sync(t.Context()))
		require.NoError(t, n.Flush(t.Context()))
	}
	require.Equal(t, []string{"patch p0", "get p0"}, a.asked(), "kubernetes#139020")
	require.True(t, n.published[0].Gone)
	n.RemoveOrphanedStatuses(func(types.UID) bool { return false })
}

func TestAPIServer_NewPodOfTheSameName(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	other := seen.DeepCopy()
	other.UID = "another"
	a.put(other)
	n := newNode(t, a)
	n.SetPodStatus(seen, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	n.SetPodStatus(seen, simple("Running", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0", "get p0"}, a.asked())
	require.Equal(t, corev1.PodPending, a.pod("p0").Status.Phase, "the new pod must not be changed")
}

func TestAPIServer_DeletesAFinishedPodAfterItsTerminalPhase(t *testing.T) {
	t.Parallel()
	a := newAPI()
	pod := numbered(1)[0]
	pod.DeletionTimestamp = &metav1.Time{Time: at(0)}
	seen := a.put(pod)
	n := newNode(t, a)
	n.SetPodStatus(seen, simple("Running", "True"))
	n.SetPodStatus(seen, simple("Succeeded", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked(), "the pod must not be deleted, because it may still have containers")
	n.TerminatePod(seen)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"delete p0"}, a.asked())
	require.Nil(t, a.pod("p0"))
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Empty(t, a.asked(), "the watch event of the last patch must not cause a request")
}

// A finalizer keeps the object after the deletion. Each newer version of the object must be
// deleted again.
func TestAPIServer_DeletesANewerVersionAgain(t *testing.T) {
	t.Parallel()
	a := newAPI()
	pod := numbered(1)[0]
	pod.DeletionTimestamp = &metav1.Time{Time: at(0)}
	seen := a.put(pod)
	n := newNode(t, a)
	var ended *corev1.Pod
	a.before = func(_ context.Context, verb, name string) error {
		if verb == "delete" {
			ended = a.pod(name)
		}
		return nil
	}
	n.TerminatePod(seen)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0", "delete p0"}, a.asked())
	n.sink.RecordObject(seen.UID, a.put(ended))
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"delete p0"}, a.asked())
}

func TestAPIServer_FinishedPodIsDeletedLater(t *testing.T) {
	t.Parallel()
	a := newAPI()
	seen := a.put(numbered(1)[0])
	n := newNode(t, a)
	n.TerminatePod(seen)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked())
	shown := a.edit("p0", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: at(0)} })
	n.SetPodStatus(shown, shown.Status)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"delete p0"}, a.asked(), "a deletion timestamp must trigger the deletion")
}

func TestAPIServer_FailedDeletion(t *testing.T) {
	t.Parallel()
	a := newAPI()
	pod := numbered(1)[0]
	pod.DeletionTimestamp = &metav1.Time{Time: at(0)}
	seen := a.put(pod)
	n := newNode(t, a)
	a.before = func(_ context.Context, verb, name string) error {
		if verb == "delete" {
			a.before = nil
			return apierrors.NewConflict(podResource, name, nil)
		}
		return nil
	}
	n.TerminatePod(seen)
	require.ErrorContains(t, n.Sync(t.Context()), "delete pod ns/p0")
	require.NoError(t, n.Flush(t.Context()))
	require.Equal(t, []string{"patch p0", "delete p0", "get p0", "delete p0"}, a.asked())
}

func TestAPIServer_TerminalPhaseWaitsForContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		seen := a.put(numbered(1)[0])
		n := newNode(t, a)
		n.mayRun[seen.UID] = true
		n.start(t)
		s := simple("Failed", "False")
		s.PodIP = "10.0.0.1"
		n.SetPodStatus(seen, s)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"patch p0"}, a.asked(), "the other fields must be published once")
		require.Equal(t, corev1.PodPending, a.pod("p0").Status.Phase)
		require.Equal(t, "10.0.0.1", a.pod("p0").Status.PodIP)
		require.Empty(t, n.failed)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, n.Flush(short), context.DeadlineExceeded)

		n.mu.Lock()
		n.mayRun[seen.UID] = false
		n.mu.Unlock()
		n.TerminatePod(seen)
		synctest.Wait()
		require.Equal(t, corev1.PodFailed, a.pod("p0").Status.Phase, "the phase must be published at once")
	})
}

// staticAndMirror returns a static pod and its mirror pod.
func staticAndMirror() (static, mirror *corev1.Pod) {
	static, mirror = numbered(1)[0], numbered(1)[0]
	static.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
	mirror.UID, mirror.Annotations = "mirror", map[string]string{podspec.MirrorAnnotation: "hash"}
	return static, mirror
}

func TestAPIServer_StaticPodsAreKnownByTheirMirrors(t *testing.T) {
	t.Parallel()
	a := newAPI()
	static, mirror := staticAndMirror()
	n := newNode(t, a)
	n.SetPodStatus(static, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	require.Empty(t, a.asked(), "without a mirror pod, nothing must be published")

	n.mirrors[static.UID] = a.put(mirror)
	n.Trigger(static.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked())

	a.remove("p0")
	mirror.UID = "mirror2"
	n.mirrors[static.UID] = a.put(mirror)
	n.Trigger(static.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked(), "the full status must be published to a new mirror pod")
	require.Equal(t, corev1.PodRunning, a.pod("p0").Status.Phase)

	a.remove("p0")
	n.SetPodStatus(static, simple("Running", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0", "get p0"}, a.asked())
	mirror.UID = "mirror3"
	n.mirrors[static.UID] = a.put(mirror)
	n.SetPodStatus(static, simple("Running", "True"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked(), "the status must be published to the next mirror pod")

	n.mirrors[static.UID] = a.edit("p0", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: at(0)} })
	n.SetPodStatus(static, simple("Failed", "False"))
	n.TerminatePod(static)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0"}, a.asked(), "a mirror pod must not be deleted here")
	n.SetPodStatus(n.mirrors[static.UID], simple("Pending", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Empty(t, a.asked(), "a mirror pod must have no separate status")
}

// TestAPIServer_NewMirrorPodIsNoCorrection checks that the first publication to a new mirror pod
// does not delay the next one, although the status has the version that the old mirror pod had.
func TestAPIServer_NewMirrorPodIsNoCorrection(t *testing.T) {
	t.Parallel()
	a := newAPI()
	static, mirror := staticAndMirror()
	n := newNode(t, a)
	n.mirrors[static.UID] = a.put(mirror)
	n.SetPodStatus(static, simple("Failed", "False"))
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, corev1.PodFailed, a.pod("p0").Status.Phase)

	a.remove("p0")
	mirror.UID = "mirror2"
	n.mirrors[static.UID] = a.put(mirror)
	n.sink.RecordObject(static.UID, n.mirrors[static.UID])
	n.Trigger(static.UID)
	n.mayRun[static.UID] = true
	require.ErrorIs(t, n.Sync(t.Context()), status.ErrTerminalPhaseDeferred)

	n.mayRun[static.UID] = false
	n.Trigger(static.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, corev1.PodFailed, a.pod("p0").Status.Phase, "the terminal phase must be published at once")
}

// TestAPIServer_Faults checks that after any fault the other pods are published, all statuses
// converge, and the number of calls stays limited.
func TestAPIServer_Faults(t *testing.T) {
	t.Parallel()
	times := func(n int, err error) func(context.Context) error {
		return func(context.Context) error {
			if n--; n < 0 {
				return nil
			}
			return err
		}
	}
	for _, tc := range []struct {
		name          string
		before, after func(context.Context) error
		calls         []string
		within        time.Duration
	}{
		{"conflict", times(1, apierrors.NewConflict(podResource, "p0", nil)), nil, []string{"patch", "get", "patch"}, 0},
		{"404 that was a lie", times(1, apierrors.NewNotFound(podResource, "p0")), nil, []string{"patch", "get", "patch"}, 0},
		{"429", times(1, apierrors.NewTooManyRequests("busy", 7)), nil, []string{"patch", "patch"}, 7 * time.Second},
		{"500", times(2, apierrors.NewInternalError(errors.New("x"))), nil, []string{"patch", "get", "get", "patch"}, 1500 * time.Millisecond},
		{"503", times(1, apierrors.NewServiceUnavailable("x")), nil, []string{"patch", "get", "patch"}, 500 * time.Millisecond},
		{"timeout", func() func(context.Context) error {
			first := true
			return func(ctx context.Context) error {
				if !first {
					return nil
				}
				first = false
				<-ctx.Done()
				return ctx.Err()
			}
		}(), nil, []string{"patch", "get", "patch"}, 10*time.Second + 500*time.Millisecond},
		{"cut mid-answer", nil, times(1, errors.New("connection reset by peer")), []string{"patch", "get"}, 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI()
			n := newNode(t, a, func(c *status.PublisherConfig) { c.Workers, c.Timeout = 4, 10*time.Second })
			only := func(fn func(context.Context) error) func(context.Context, string, string) error {
				return func(ctx context.Context, _, name string) error {
					if name != "p0" || fn == nil {
						return nil
					}
					return fn(ctx)
				}
			}
			a.before, a.after = only(tc.before), only(tc.after)
			n.start(t)
			start := time.Now()
			for _, pod := range numbered(20) {
				n.SetPodStatus(a.put(pod), simple("Running", "True"))
			}
			synctest.Wait()
			for _, pod := range numbered(20)[1:] {
				require.Equal(t, corev1.PodRunning, a.pod(pod.Name).Status.Phase, "%s: other pods must be published", tc.name)
			}
			require.NoError(t, n.Flush(t.Context()), tc.name)
			require.Equal(t, tc.within, time.Since(start), tc.name)
			require.Equal(t, corev1.PodRunning, a.pod("p0").Status.Phase, tc.name)
			var calls []string
			for _, call := range a.asked() {
				if verb, ok := strings.CutSuffix(call, " p0"); ok {
					calls = append(calls, verb)
				}
			}
			require.Equal(t, tc.calls, calls, tc.name)
		})
	}
}

func TestAPIServer_OverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI()
	server := httptest.NewServer(a)
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	sink, err := status.NewAPIServer(status.APIServerConfig{Pods: func(ns string) status.PodClient {
		return remotePods{client, server.URL + "/api/v1/namespaces/" + ns + "/pods"}
	}})
	require.NoError(t, err)
	n := newNode(t, a, func(c *status.PublisherConfig) { c.Sink = sink })
	n.start(t)

	pod := newPod("Always", "a", "b", "c")
	pod.DeletionTimestamp = &metav1.Time{Time: at(0)}
	seen := a.put(pod)
	s, _ := n.SetPodStatus(seen, *full())
	require.NoError(t, n.Flush(t.Context()))
	shown := a.pod("pod").Status
	require.True(t, status.Equal(pod, &s, &shown))
	require.Equal(t, []string{"patch pod"}, a.asked())

	a.edit("pod", func(pod *corev1.Pod) { pod.Labels = map[string]string{"edited": ""} })
	a.after = func(_ context.Context, verb, _ string) error {
		a.after = nil
		if verb == "patch" {
			client.CloseIdleConnections()
		}
		return nil
	}
	n.SetContainerReadiness(pod.UID, s.ContainerStatuses[0].ContainerID, false)
	require.NoError(t, n.Flush(t.Context()))
	require.Equal(t, []string{"patch pod", "get pod", "patch pod"}, a.asked())
	require.Equal(t, corev1.ConditionFalse, status.Condition(a.pod("pod").Status.Conditions, corev1.PodReady).Status)

	n.TerminatePod(seen)
	require.NoError(t, n.Flush(t.Context()))
	require.Equal(t, []string{"patch pod", "delete pod"}, a.asked())
	n.Trigger(pod.UID)
	require.NoError(t, n.Flush(t.Context()))
}

// TestAPIServer_DeletesARestoredPodAgain checks that the object of a finished pod is deleted again if
// the API server is restored from a state before the deletion.
func TestAPIServer_DeletesARestoredPodAgain(t *testing.T) {
	t.Parallel()
	a := newAPI()
	pod := numbered(1)[0]
	pod.DeletionTimestamp = &metav1.Time{Time: at(0)}
	seen := a.put(pod)
	n := newNode(t, a)
	n.TerminatePod(seen)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch p0", "delete p0"}, a.asked())

	a.pods["ns/p0"] = seen.DeepCopy()
	n.sink.RecordList([]*corev1.Pod{seen})
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"get p0", "patch p0", "delete p0"}, a.asked())
	require.Nil(t, a.pod("p0"))
}
