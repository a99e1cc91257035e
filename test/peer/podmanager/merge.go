package podmanager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // linkname

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// The kubelet does not export a single merge step. The following are its unexported
// functions, with types of the same layout.
type (
	sourceUpdate struct{ Pods []*corev1.Pod }
	podStorage   struct{}
	startup      interface {
		ObservedPodOnWatch(pod *corev1.Pod, when time.Time)
	}
)

//go:linkname newPodStorage k8s.io/kubernetes/pkg/kubelet/config.newPodStorage
func newPodStorage(updates chan<- kubetypes.PodUpdate, recorder record.EventRecorderLogger, observer startup) *podStorage

//go:linkname merge k8s.io/kubernetes/pkg/kubelet/config.(*podStorage).Merge
func merge(s *podStorage, ctx context.Context, source string, update sourceUpdate) error

// The package is linked for its functions above.
var _ = config.NewPodConfig

type ignore struct{}

func (ignore) ObservedPodOnWatch(*corev1.Pod, time.Time) {}

// A mergeWorld is a sequence of updates by sources.
type mergeWorld struct{ Steps []answer }

// An answer is the complete set of pods of a source.
type answer struct {
	Source string
	Pods   []*corev1.Pod
}

func (w *mergeWorld) String() string {
	var b strings.Builder
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d: %s\n", i, s.Source)
		for _, pod := range s.Pods {
			fmt.Fprintf(&b, "    %s %s labels=%v annotations=%v node=%q phase=%s deletion=%v %v\n", fullName(pod), pod.UID, pod.Labels, pod.Annotations, pod.Spec.NodeName,
				pod.Status.Phase, pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds)
		}
	}
	return b.String()
}

func sources() []string { return []string{"file", "http", "api"} }

func newMergeWorld(d *judge.Draw) *mergeWorld {
	w := &mergeWorld{}
	given := map[string][]*corev1.Pod{}
	for range d.Between(1, 8) {
		source := sources()[d.Int(3)]
		var pods []*corev1.Pod
		for _, pod := range given[source] {
			if !d.Chance(20) {
				pods = append(pods, editPod(d, pod))
			}
		}
		for range d.Int(3) {
			pods = append(pods, newPod(d, source))
		}
		if d.Chance(20) {
			judge.Shuffle(d, pods)
		}
		pods = distinct(source, pods)
		given[source] = pods
		w.Steps = append(w.Steps, answer{source, clones(pods)})
	}
	return w
}

// distinct removes the second of two pods with one UID, because the kubelet chooses between
// them at random. For the API server, it also removes the second of two pods with one name,
// because an API server has only one pod with a name.
func distinct(source string, pods []*corev1.Pod) (all []*corev1.Pod) {
	seen := map[string]bool{}
	for _, pod := range pods {
		if seen[string(pod.UID)] || source == "api" && seen["name "+fullName(pod)] {
			continue
		}
		all = append(all, pod)
		seen[string(pod.UID)], seen["name "+fullName(pod)] = true, true
	}
	return all
}

func clones(pods []*corev1.Pod) (all []*corev1.Pod) {
	for _, pod := range pods {
		all = append(all, pod.DeepCopy())
	}
	return all
}

// newPod returns a pod of a source. Rarely, it has the name or UID of another source's pod.
func newPod(d *judge.Draw, source string) *corev1.Pod {
	n := d.Int(4)
	owner := source
	if d.Chance(5) {
		owner = sources()[d.Int(3)]
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", owner, n), Namespace: "ns", UID: types.UID(fmt.Sprintf("%s-uid-%d", source, n))}}
	if d.Chance(15) {
		pod.Namespace = "other"
	}
	if d.Chance(5) {
		pod.UID = types.UID(fmt.Sprintf("%s-uid-%d", owner, n))
	}
	if d.Chance(10) {
		pod.UID += "-b" // a successor with the same name
	}
	pod.Annotations = map[string]string{sourceAnnotation: source, "kubernetes.io/config.seen": "x"}
	switch { // sources do not write this annotation into pods of the API server, but users can
	case source != "api":
	case n%2 == 0:
		delete(pod.Annotations, sourceAnnotation)
	default:
		pod.Annotations[sourceAnnotation] = "file"
	}
	if source == "api" && d.Chance(20) {
		pod.Annotations[mirrorAnnotation] = "h"
		pod.Name = fmt.Sprintf("file-%d", n)
	}
	pod.Status.Phase = corev1.PodPending
	return pod
}

// editPod returns a pod with a change, or an equal one.
func editPod(d *judge.Draw, pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	switch d.Int(14) {
	case 0:
		pod.Labels = map[string]string{"a": judge.Pick(d, "1", "2")}
	case 1:
		pod.Annotations["note"] = judge.Pick(d, "1", "2")
	case 2:
		pod.Annotations["kubernetes.io/config.seen"] = judge.Pick(d, "y", "z")
		if pod.Annotations[mirrorAnnotation] != "" {
			pod.Annotations[mirrorAnnotation] = "h" + pod.Annotations["kubernetes.io/config.seen"]
		}
	case 3:
		pod.Spec.NodeName = judge.Pick(d, "n1", "n2")
	case 4:
		pod.Status.Phase = judge.Pick(d, corev1.PodRunning, corev1.PodFailed)
	case 5:
		pod.DeletionTimestamp = &metav1.Time{Time: time.Date(2024, 1, 1, 0, 0, d.Between(1, 2), 0, time.UTC)}
	case 6:
		pod.DeletionGracePeriodSeconds = new(int64(d.Between(1, 2)))
	case 7:
		pod.ResourceVersion = judge.Pick(d, "1", "2")
	case 8:
		pod.Labels = map[string]string{}
	case 9:
		pod.Spec.Tolerations = []corev1.Toleration{}
	case 10:
		if d.Chance(30) {
			pod.Name += "x"
		}
	default:
	}
	return pod
}

// opText returns an operation as a fact.
func opText(op string, pod *corev1.Pod) (fact, value string) {
	return fmt.Sprintf("pod %s", pod.UID), fmt.Sprintf("%s labels=%v node=%s phase=%s deleting=%t note=%s", op, pod.Labels, pod.Spec.NodeName,
		pod.Status.Phase, pod.DeletionTimestamp != nil, pod.Annotations["note"])
}

func kubeletMerge(t *testing.T, w *mergeWorld) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		updates := make(chan kubetypes.PodUpdate, 20)
		storage := newPodStorage(updates, record.NewFakeRecorder(1000), ignore{})
		names := map[kubetypes.PodOperation]string{kubetypes.ADD: "ADD", kubetypes.UPDATE: "UPDATE", kubetypes.DELETE: "DELETE", kubetypes.REMOVE: "REMOVE", kubetypes.RECONCILE: "RECONCILE"}
		answered, state := map[string]bool{}, map[types.UID]*corev1.Pod{}
		for _, s := range w.Steps {
			require.NoError(t, merge(storage, t.Context(), s.Source, sourceUpdate{clones(s.Pods)}))
			f := judge.Facts{}
			told := len(updates) > 0
			first := true
			for len(updates) > 0 {
				u := <-updates
				if u.Op == kubetypes.REMOVE && !first && len(u.Pods) > 0 {
					f["removed late"] = "yes"
				}
				first = first && u.Op == kubetypes.REMOVE
				for _, pod := range u.Pods {
					fact, value := opText(names[u.Op], pod)
					f[fact] = value
					if state[pod.UID] = pod.DeepCopy(); u.Op == kubetypes.REMOVE {
						delete(state, pod.UID)
					}
				}
			}
			f["told"] = fmt.Sprint(told)
			answered[s.Source] = true
			f["unanswered"] = fmt.Sprint(slices.DeleteFunc(sources(), func(s string) bool { return answered[s] }))
			addState(f, slices.Collect(maps.Values(state)))
			all = append(all, f)
		}
	})
	return all
}

// addState adds the pods of all sources, by UID, with the source of each.
func addState(f judge.Facts, pods []*corev1.Pod) {
	for _, pod := range pods {
		f["wanted "+string(pod.UID)] = wanted(pod)
		f["source "+string(pod.UID)] = pod.Annotations[sourceAnnotation]
	}
}

func wanted(pod *corev1.Pod) string {
	return fmt.Sprintf("%s labels=%v node=%s note=%s", fullName(pod), pod.Labels, pod.Spec.NodeName, pod.Annotations["note"])
}

func ourMerge(t *testing.T, w *mergeWorld) (all []judge.Facts) {
	t.Helper()
	refusals(t)
	var f judge.Facts
	var change podmanager.Change
	reported := map[podmanager.Conflict]bool{}
	observer := podmanager.MergeObserver{ConflictsChanged: func(added, gone []podmanager.Conflict) {
		for _, c := range added {
			require.False(t, reported[c], c)
			reported[c] = true
		}
		for _, c := range gone {
			require.True(t, reported[c], c)
			delete(reported, c)
		}
	}}
	m, err := podmanager.NewMerge(podmanager.MergeConfig{Sources: sources(), Observer: observer, Handler: func(_ context.Context, c podmanager.Change) {
		f["told"] = "true"
		change = c
		removing := true
		for _, op := range c.Ops {
			fact, value := opText(op.Type.String(), op.Pod)
			f[fact] = value
			if op.Type == podmanager.Remove && !removing {
				f["removed late"] = "yes"
			}
			removing = removing && op.Type == podmanager.Remove
		}
	}})
	require.NoError(t, err)
	for i, s := range w.Steps {
		f = judge.Facts{"told": "false"}
		change = podmanager.Change{Source: s.Source, Pods: change.Pods, UnreadSources: m.UnreadSources()}
		before := clones(s.Pods)
		m.Source(s.Source)(t.Context(), s.Pods)
		require.Equal(t, before, s.Pods, "Merge must not modify the pods of a source")
		f["unanswered"] = fmt.Sprint(m.UnreadSources())
		if f["told"] == "true" {
			require.Equal(t, s.Source, change.Source)
			require.Equal(t, m.UnreadSources(), change.UnreadSources)
			requireOrder(t, w, i, change)
		}
		addState(f, change.Pods)
		requireConflicts(t, w, i, m.Conflicts())
		require.ElementsMatch(t, m.Conflicts(), slices.Collect(maps.Keys(reported)))
		all = append(all, f)
	}
	return all
}

// refusals checks which configurations our Merge rejects. The kubelet does not have such
// configurations.
func refusals(t *testing.T) {
	t.Helper()
	_, err := podmanager.NewMerge(podmanager.MergeConfig{})
	require.EqualError(t, err, "podmanager: invalid config: field Sources is required\nfield Handler is required")
	ignored := func(context.Context, podmanager.Change) { t.Error("received a change from an unknown source") }
	_, err = podmanager.NewMerge(podmanager.MergeConfig{Sources: []string{"a", "", "a"}, Handler: ignored})
	require.EqualError(t, err, "podmanager: invalid config: field Sources[1]: the name is empty\nfield Sources: \"a\" occurs twice")
	m, err := podmanager.NewMerge(podmanager.MergeConfig{Sources: []string{"a"}, Handler: ignored})
	require.NoError(t, err)
	require.EqualError(t, m.Set(t.Context(), "b", nil), `podmanager: unknown source "b"`)
	for holders, want := range map[[2]string]string{
		{"x", ""}:  "source x has a pod with this UID",
		{"", "x"}:  "source x has a pod with this name",
		{"x", "x"}: "source x has a pod with this UID and name",
		{"x", "y"}: "source x has a pod with this UID, and source y has a pod with this name",
	} {
		c := podmanager.Conflict{Source: "a", Pod: types.NamespacedName{Namespace: "ns", Name: "n"}, UID: "u", UIDHolder: holders[0], NameHolder: holders[1]}
		require.Equal(t, "ignored pod ns/n (UID u) of source a: "+want, c.String())
	}
}

// requireConflicts checks the reported conflicts between pods of two sources. The kubelet
// does not report them.
func requireConflicts(t *testing.T, w *mergeWorld, step int, told []podmanager.Conflict) {
	t.Helper()
	var want []podmanager.Conflict
	for _, source := range sources() {
		want = append(want, conflicts(w, step, source)...)
	}
	require.Equal(t, want, told)
}

// requireOrder checks that the pods and operations are in the order of the sources and of
// their updates, and that a pod with a source annotation is not copied. The kubelet's lists
// have no order.
func requireOrder(t *testing.T, w *mergeWorld, step int, c podmanager.Change) {
	t.Helper()
	type key struct {
		source string
		uid    types.UID
	}
	place := map[key]int{}
	given := givenAt(w, step)
	for _, source := range sources() {
		for _, pod := range given[source] {
			place[key{source, pod.UID}] = len(place)
		}
	}
	for _, pod := range c.Pods {
		require.True(t, pod.Annotations[sourceAnnotation] == "api" || slices.Contains(given[pod.Annotations[sourceAnnotation]], pod), "Merge must not copy a pod that has a source annotation")
	}
	placeOf := func(pod *corev1.Pod) int { return place[key{pod.Annotations[sourceAnnotation], pod.UID}] }
	var ops []*corev1.Pod
	for _, op := range c.Ops {
		if op.Type != podmanager.Remove {
			ops = append(ops, op.Pod)
		}
	}
	for _, list := range [][]*corev1.Pod{c.Pods, ops} {
		require.True(t, slices.IsSortedFunc(list, func(a, b *corev1.Pod) int { return placeOf(a) - placeOf(b) }))
	}
}
