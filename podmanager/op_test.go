package podmanager_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
)

// podOf returns a pod as a source delivers it.
func podOf(name, uid, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

func opTexts(ops []podmanager.Op) (list []string) {
	for _, op := range ops {
		list = append(list, fmt.Sprintf("%v %s", op.Type, op.Pod.UID))
	}
	return list
}

func TestDiff_OperationOfEachChange(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Unix(1000, 0))
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"nothing":         {func(*corev1.Pod) {}, ""},
		"status":          {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, "RECONCILE u"},
		"image":           {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "i:2" }, "UPDATE u"},
		"label":           {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, "UPDATE u"},
		"annotation":      {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, "UPDATE u"},
		"hash":            {func(p *corev1.Pod) { p.Annotations = map[string]string{podspec.HashAnnotation: "b"} }, "UPDATE u"},
		"name":            {func(p *corev1.Pod) { p.Name = "b" }, "UPDATE u"},
		"spec and status": {func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n", "Running" }, "UPDATE u"},
		"annotations of the kubelet": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{podspec.SeenAnnotation: "now", podspec.MirrorAnnotation: "h"}
		}, ""},
		"source":                {func(p *corev1.Pod) { p.Annotations = map[string]string{podspec.SourceAnnotation: "http"} }, "UPDATE u"},
		"resource version":      {func(p *corev1.Pod) { p.ResourceVersion = "2" }, ""},
		"no labels, as a map":   {func(p *corev1.Pod) { p.Labels = map[string]string{} }, ""},
		"deletion":              {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, "DELETE u"},
		"deletion and an image": {func(p *corev1.Pod) { p.DeletionTimestamp, p.Spec.Containers[0].Image = &now, "i:2" }, "DELETE u"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := podOf("a", "u", "i:1")
			pod := old.DeepCopy()
			c.change(pod)
			ops := podmanager.Diff([]*corev1.Pod{old}, []*corev1.Pod{pod})
			if c.want == "" {
				require.Empty(t, ops)
				return
			}
			require.Equal(t, []string{c.want}, opTexts(ops))
			require.Same(t, pod, ops[0].Pod)
		})
	}
	deleting := podOf("a", "u", "i:1")
	deleting.DeletionTimestamp, deleting.DeletionGracePeriodSeconds = &now, new(int64(30))
	shorter := deleting.DeepCopy()
	shorter.DeletionGracePeriodSeconds = new(int64(1))
	require.Equal(t, []string{"DELETE u"}, opTexts(podmanager.Diff([]*corev1.Pod{deleting}, []*corev1.Pod{shorter})))
	require.Equal(t, []string{"ADD u"}, opTexts(podmanager.Diff(nil, []*corev1.Pod{deleting})), "a new pod with a deletion timestamp must be added")
	require.Equal(t, "NONE", podmanager.OpType(0).String())
}

// Pods of an API server have no hash. Their changes are detected nevertheless.
func TestDiff_APIPods(t *testing.T) {
	t.Parallel()
	ends := metav1.NewTime(time.Unix(1000, 0))
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"an equal object":     {func(*corev1.Pod) {}, nil},
		"label added":         {func(p *corev1.Pod) { p.Labels["tier"] = "front" }, []string{"UPDATE u"}},
		"label changed":       {func(p *corev1.Pod) { p.Labels["app"] = "b" }, []string{"UPDATE u"}},
		"labels removed":      {func(p *corev1.Pod) { p.Labels = nil }, []string{"UPDATE u"}},
		"annotation added":    {func(p *corev1.Pod) { p.Annotations["b"] = "1" }, []string{"UPDATE u"}},
		"annotation changed":  {func(p *corev1.Pod) { p.Annotations["note"] = "2" }, []string{"UPDATE u"}},
		"annotation removed":  {func(p *corev1.Pod) { delete(p.Annotations, "note") }, []string{"UPDATE u"}},
		"image":               {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "i:2" }, []string{"UPDATE u"}},
		"active deadline":     {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(5)) }, []string{"UPDATE u"}},
		"ephemeral container": {func(p *corev1.Pod) { p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1) }, []string{"UPDATE u"}},
		"deletion":            {func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &ends, new(int64(30)) }, []string{"DELETE u"}},
		"deletion and status": {func(p *corev1.Pod) { p.DeletionTimestamp, p.Status.Phase = &ends, corev1.PodRunning }, []string{"DELETE u"}},
		"status":              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, []string{"RECONCILE u"}},
		"condition":           {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: "Ready"}} }, []string{"RECONCILE u"}},
		"resource version and managed fields": {func(p *corev1.Pod) {
			p.ResourceVersion, p.ManagedFields = "2", []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := podOf("a", "u", "i:1")
			old.Labels, old.Annotations = map[string]string{"app": "a"}, map[string]string{podspec.SourceAnnotation: podspec.SourceAPI, "note": "1"}
			require.Empty(t, podmanager.Diff([]*corev1.Pod{old}, []*corev1.Pod{old}), "the same object must not be a change")
			pod, before := old.DeepCopy(), old.DeepCopy()
			c.change(pod)
			after := pod.DeepCopy()
			ops := podmanager.Diff([]*corev1.Pod{old}, []*corev1.Pod{pod})
			require.Equal(t, c.want, opTexts(ops))
			for _, op := range ops {
				require.Same(t, pod, op.Pod)
			}
			require.Equal(t, []*corev1.Pod{before, after}, []*corev1.Pod{old, pod}, "the pods must not be modified")
		})
	}
}

func TestDiff_RemovesBeforeItAdds(t *testing.T) {
	t.Parallel()
	before := []*corev1.Pod{podOf("a", "u1", "i:1"), podOf("b", "u2", "i:1"), podOf("c", "u3", "i:1")}
	now := []*corev1.Pod{podOf("b", "u5", "i:1"), podOf("a", "u4", "i:1"), before[2]}
	require.Equal(t, []string{"REMOVE u1", "REMOVE u2", "ADD u5", "ADD u4"}, opTexts(podmanager.Diff(before, now)))
}

// If sets are skipped, the operations lead from the last delivered set to the current one.
func TestDiff_OperationsLeadToTheNewSet(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var told []*corev1.Pod
	known := map[types.UID]*corev1.Pod{}
	for range 1000 {
		var now []*corev1.Pod
		for uid := range 6 {
			if rnd.IntN(3) > 0 {
				now = append(now, podOf(fmt.Sprintf("p%d", rnd.IntN(3)), fmt.Sprintf("u%d", uid), fmt.Sprintf("i:%d", rnd.IntN(2))))
			}
		}
		if rnd.IntN(2) == 0 {
			continue // this set is skipped
		}
		seen := map[types.UID]bool{}
		for _, op := range podmanager.Diff(told, now) {
			require.False(t, seen[op.Pod.UID], "two operations for one pod")
			seen[op.Pod.UID] = true
			_, there := known[op.Pod.UID]
			require.Equal(t, op.Type != podmanager.Add, there)
			known[op.Pod.UID] = op.Pod
			if op.Type == podmanager.Remove {
				delete(known, op.Pod.UID)
			}
		}
		require.Len(t, known, len(now))
		for _, pod := range now {
			require.Equal(t, pod, known[pod.UID])
		}
		told = now
	}
}
