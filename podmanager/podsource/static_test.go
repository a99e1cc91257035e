package podsource_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

// podOf returns a pod as a program creates it.
func podOf(name, uid, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

func TestStatic_PodsAreLikeManifests(t *testing.T) {
	t.Parallel()
	s, err := podsource.NewStatic(podsource.StaticConfig{
		NodeName: "Node1", Clock: testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	})
	require.NoError(t, err)
	given := podOf("a", "", "i:1")
	before := given.DeepCopy()
	require.NoError(t, s.Set([]*corev1.Pod{given}))
	require.Equal(t, before, given, "the given pod must not be modified")
	pod := s.Pods()[0]
	require.Equal(t, "a-node1", pod.Name)
	require.Equal(t, corev1.PullIfNotPresent, pod.Spec.Containers[0].ImagePullPolicy)
	require.Regexp(t, "^[0-9a-f]{32}$", pod.UID)
	require.Equal(t, map[string]string{
		podspec.SourceAnnotation: podsource.SourceStatic,
		podspec.HashAnnotation:   string(pod.UID),
		podspec.SeenAnnotation:   "2026-01-02T03:04:05.000000000Z",
	}, pod.Annotations)
	require.NoError(t, s.Set([]*corev1.Pod{given}))
	require.Same(t, pod, s.Pods()[0])
}

func TestStatic_RunDeliversEachChangedSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := podsource.NewStatic(podsource.StaticConfig{NodeName: "n"})
		require.NoError(t, err)
		told := make(chan string, 10)
		set := func(_ context.Context, pods []*corev1.Pod) { told <- images(pods) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, set) }()
		synctest.Wait()
		require.Empty(t, told, "before the first Set, nothing must be delivered")
		require.ErrorIs(t, s.Run(t.Context(), set), podsource.ErrRunning)

		require.NoError(t, s.Set(nil))
		require.Empty(t, <-told, "an empty list must be delivered")
		require.NoError(t, s.Set([]*corev1.Pod{podOf("a", "", "i:1")}))
		require.Equal(t, "a-n i:1", <-told)
		require.NoError(t, s.Set([]*corev1.Pod{podOf("a", "", "i:1")}))
		require.Error(t, s.Set([]*corev1.Pod{nil}))
		synctest.Wait()
		require.Empty(t, told, "an unchanged list must not be delivered")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestStatic_InvalidSetChangesNothing(t *testing.T) {
	t.Parallel()
	s, err := podsource.NewStatic(podsource.StaticConfig{NodeName: "n"})
	require.NoError(t, err)
	require.NoError(t, s.Set([]*corev1.Pod{podOf("a", "", "i:1")}))
	err = s.Set([]*corev1.Pod{podOf("b", "", "i:1"), podOf("b", "", "i:2"), podOf("", "", ""), nil})
	require.EqualError(t, err, `static: document 3: metadata.name: Required value; spec.containers[0].image: Required value
static: document 4: the pod is nil
static: document 2: metadata.name: Duplicate value: "default/b-n": already defined in static, document 1`)
	require.Equal(t, "a-n i:1", images(s.Pods()))

	_, err = podsource.NewStatic(podsource.StaticConfig{})
	require.ErrorContains(t, err, "field NodeName is required")
}
