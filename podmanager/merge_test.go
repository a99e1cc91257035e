package podmanager_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
)

// mergeBed is a Merge of a file, an http and an api source, with its recorded changes.
type mergeBed struct {
	*podmanager.Merge
	t       *testing.T
	changes []podmanager.Change
	told    []string // conflicts that appeared ("+ conflict") or were resolved ("- conflict")
	log     bytes.Buffer
}

func newMergeBed(t *testing.T) *mergeBed {
	t.Helper()
	b := &mergeBed{t: t}
	var err error
	b.Merge, err = podmanager.NewMerge(podmanager.MergeConfig{
		Sources: []string{"file", "http", "api"},
		Handler: func(_ context.Context, c podmanager.Change) { b.changes = append(b.changes, c) },
		Logger:  slog.New(slog.NewTextHandler(&b.log, nil)),
		Observer: podmanager.MergeObserver{ConflictsChanged: func(added, gone []podmanager.Conflict) {
			for _, c := range added {
				b.told = append(b.told, "+ "+c.String())
			}
			for _, c := range gone {
				b.told = append(b.told, "- "+c.String())
			}
		}},
	})
	require.NoError(t, err)
	return b
}

// set sets a source's pods and requires these operations.
func (b *mergeBed) set(source string, pods []*corev1.Pod, want ...string) {
	b.t.Helper()
	b.changes = nil
	require.NoError(b.t, b.Set(b.t.Context(), source, pods))
	var got []string
	for _, c := range b.changes {
		require.Equal(b.t, source, c.Source)
		got = append(got, opTexts(c.Ops)...)
	}
	require.Equal(b.t, want, got)
	require.Less(b.t, len(b.changes), 2)
}

func pods(list ...*corev1.Pod) []*corev1.Pod { return list }

// images returns each pod as "name image".
func images(pods []*corev1.Pod) string {
	var list []string
	for _, pod := range pods {
		list = append(list, pod.Name+" "+pod.Spec.Containers[0].Image)
	}
	return strings.Join(list, ", ")
}

func TestMergeConfig_ValidateReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := podmanager.NewMerge(podmanager.MergeConfig{})
	require.ErrorContains(t, err, "podmanager: invalid config")
	require.ErrorContains(t, err, "field Sources is required")
	require.ErrorContains(t, err, "field Handler is required")
	err = podmanager.MergeConfig{Sources: []string{"a", "", "a"}}.Validate()
	require.ErrorContains(t, err, "field Sources[1]: the name is empty")
	require.ErrorContains(t, err, `"a" occurs twice`)
}

func TestMerge_SourcesAreIndependent(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	require.Equal(t, []string{"file", "http", "api"}, b.UnreadSources())
	b.set("http", pods(podOf("a", "u1", "i:1")), "ADD u1")
	require.Equal(t, []string{"file", "api"}, b.changes[0].UnreadSources)
	b.set("file", nil)
	require.Len(t, b.changes, 1, "pods must be in the order of the sources")
	require.Equal(t, []string{"api"}, b.changes[0].UnreadSources)
	b.set("file", nil)
	require.Empty(t, b.changes)

	b.set("file", pods(podOf("b", "u2", "i:1")), "ADD u2")
	require.Equal(t, "b i:1, a i:1", images(b.changes[0].Pods), "an API source must not delay the removal of other sources' pods")
	b.set("http", nil, "REMOVE u1")
	require.Equal(t, "b i:1", images(b.changes[0].Pods))
	require.Equal(t, []string{"api"}, b.UnreadSources(), "each operation must be logged in one line")

	require.ErrorContains(t, b.Set(t.Context(), "nobody", nil), `unknown source "nobody"`)
	b.Source("nobody")(t.Context(), nil)
	b.Source("api")(t.Context(), pods(podOf("c", "u3", "i:1")))
	require.Contains(t, b.log.String(), `level=ERROR msg="dropped pods of an unknown source" source=nobody`)
	require.Equal(t, 4, strings.Count(b.log.String(), `msg="a source changed its pods"`), "each operation is one line")
	require.Contains(t, b.log.String(), `msg="a source changed its pods" op=REMOVE pod=default/a podUID=u1 source=http`)
}

func TestMerge_PodOfTwoSourcesStaysWithTheFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ uid, conflict, other string }{
		"another UID": {
			"u2", "ignored pod default/a (UID u2) of source file: source http has a pod with this name",
			"ignored pod default/a (UID u1) of source http: source file has a pod with this name",
		},
		"the same UID": {
			"u1", "ignored pod default/a (UID u1) of source file: source http has a pod with this UID and name",
			"ignored pod default/a (UID u1) of source http: source file has a pod with this UID and name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newMergeBed(t)
			b.set("http", pods(podOf("a", "u1", "i:1")), "ADD u1")
			b.set("file", pods(podOf("a", c.uid, "i:2"), podOf("b", "u3", "i:1")), "ADD u3")
			require.Len(t, b.Conflicts(), 1)
			require.Equal(t, c.conflict, b.Conflicts()[0].String())
			b.set("http", pods(podOf("a", "u1", "i:3")), "UPDATE u1")
			require.Equal(t, []string{"+ " + c.conflict}, b.told, "once")

			// The pod moves to the other source when the first source removes it.
			if c.uid == "u1" {
				b.set("http", nil, "UPDATE u1")
			} else {
				b.set("http", nil, "REMOVE u1", "ADD u2")
			}
			require.Empty(t, b.Conflicts())
			b.set("http", pods(podOf("a", "u1", "i:3")))
			require.Len(t, b.Conflicts(), 1, "the pod must belong to the other source")
			require.Equal(t, []string{"+ " + c.conflict, "- " + c.conflict, "+ " + c.other}, b.told)
			require.Equal(t, 2, strings.Count(b.log.String(), `level=WARN msg="ignored pod: another pod has its UID or name" pod=default/a`))
			require.Equal(t, 1, strings.Count(b.log.String(), `level=INFO msg="pod conflict resolved" pod=default/a podUID=`+c.uid+` source=file`))
		})
	}
}

func TestMerge_FreedNameGoesToTheFirstSourceInOrder(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	b.set("http", pods(podOf("a", "u1", "i:1")), "ADD u1")
	b.set("api", pods(podOf("a", "u2", "i:1")))
	b.set("file", pods(podOf("a", "u3", "i:1")))
	require.Equal(t, []podmanager.Conflict{
		{Source: "file", Pod: types.NamespacedName{Namespace: "default", Name: "a"}, UID: "u3", NameHolder: "http"},
		{Source: "api", Pod: types.NamespacedName{Namespace: "default", Name: "a"}, UID: "u2", NameHolder: "http"},
	}, b.Conflicts(), "conflicts must be in the order of the sources")
	b.set("http", nil, "REMOVE u1", "ADD u3") // api defined it earlier than file
}

func TestConflict_StringHasSourcesOfUIDAndName(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	b.set("file", pods(podOf("a", "u1", "i:1")), "ADD u1")
	b.set("http", pods(podOf("b", "u2", "i:1")), "ADD u2")
	b.set("api", pods(podOf("c", "u1", "i:1"), podOf("b", "u1", "i:1")))
	require.Len(t, b.Conflicts(), 2)
	require.Equal(t, "ignored pod default/c (UID u1) of source api: source file has a pod with this UID", b.Conflicts()[0].String())
	require.Equal(t, "ignored pod default/b (UID u1) of source api: source file has a pod with this UID, and source http has a pod with this name",
		b.Conflicts()[1].String())
}

// A pod that moves to another source is an update even if nothing else has changed: a static
// pod and a pod of the API server are handled differently.
func TestMerge_SamePodFromAnotherSourceIsAnUpdate(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	b.set("file", pods(podOf("a", "u1", "i:1")), "ADD u1")
	b.set("api", pods(podOf("a", "u1", "i:1")))
	b.set("file", nil, "UPDATE u1")
	require.False(t, podspec.IsStatic(b.changes[0].Pods[0]))
}

func TestMerge_EditedPodKeepsItsName(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	b.set("http", pods(podOf("a", "u1", "i:1")), "ADD u1")
	b.set("file", pods(podOf("a", "u2", "i:1")))
	b.set("http", pods(podOf("a", "u5", "i:2")), "REMOVE u1", "ADD u5")
	require.Len(t, b.Conflicts(), 1)
}

func TestMerge_TwoPodsOfOneNameFromOneSource(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	same := podOf("b", "u3", "i:1")
	b.set("api", pods(podOf("a", "u1", "i:1"), podOf("a", "u2", "i:1"), same, same), "ADD u1", "ADD u3")
	require.Len(t, b.Conflicts(), 2)
}

func TestMerge_MirrorDoesNotConflictWithItsPod(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	mirror := podOf("a", "m1", "i:1")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "h"}
	b.set("file", pods(podOf("a", "u1", "i:1")), "ADD u1")
	b.set("api", pods(mirror), "ADD m1")
	require.Empty(t, b.Conflicts())
}

// For all pods of the sources, in any order of calls: no two delivered pods have the same
// name or UID, no pod is missing whose name and UID are free, no source loses a pod that it
// still defines, and the operations lead to the delivered pods.
func TestMerge_RandomOperations(t *testing.T) {
	t.Parallel()
	for run := range 100 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("run %d seed %d", run, seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			b, given, known := newMergeBed(t), map[string][]*corev1.Pod{}, map[string]*corev1.Pod{}
			var before []*corev1.Pod
			for range 50 {
				source := []string{"file", "http", "api"}[rnd.IntN(3)]
				var list []*corev1.Pod
				for i := range 4 {
					if rnd.IntN(2) == 0 { // a name can have several UIDs, and a UID several names
						pod := podOf(fmt.Sprintf("p%d", i), fmt.Sprintf("u%d", 4*rnd.IntN(2)+(i+rnd.IntN(2)*2)%4), fmt.Sprintf("i:%d", rnd.IntN(2)))
						if said := []string{"", "file", "http", "api"}[rnd.IntN(4)]; said != "" { // the annotation may name another source
							pod.Annotations = map[string]string{podspec.SourceAnnotation: said}
						}
						list = append(list, pod)
					}
				}
				given[source] = list
				b.changes = nil
				require.NoError(t, b.Set(t.Context(), source, list))
				now := before
				for _, c := range b.changes {
					now = c.Pods
					applyOps(t, known, c.Ops)
				}
				requireMerged(t, given, source, before, now)
				require.Len(t, slices.Concat(slices.Collect(maps.Values(given))...), len(now)+len(b.Conflicts()))
				require.ElementsMatch(t, slices.Collect(maps.Values(known)), now)
				before = now
			}
		})
	}
}

func applyOps(t *testing.T, known map[string]*corev1.Pod, ops []podmanager.Op) {
	t.Helper()
	for _, op := range ops {
		uid := string(op.Pod.UID)
		require.Equal(t, op.Type == podmanager.Add, known[uid] == nil)
		known[uid] = op.Pod
		if op.Type == podmanager.Remove {
			delete(known, uid)
		}
	}
}

func requireMerged(t *testing.T, given map[string][]*corev1.Pod, source string, before, now []*corev1.Pod) {
	t.Helper()
	names, uids := map[string]bool{}, map[string]bool{}
	for _, pod := range now {
		require.False(t, names[pod.Name] || uids[string(pod.UID)])
		names[pod.Name], uids[string(pod.UID)] = true, true
		require.True(t, slices.ContainsFunc(given[pod.Annotations[podspec.SourceAnnotation]], func(p *corev1.Pod) bool {
			return p.Name == pod.Name && p.UID == pod.UID && equality.Semantic.DeepEqual(p.Spec, pod.Spec)
		}), "a delivered pod must be defined by its source")
	}
	for _, list := range given {
		for _, pod := range list {
			require.True(t, names[pod.Name] || uids[string(pod.UID)], "a pod is missing although its name and UID are free")
		}
	}
	for _, pod := range before {
		if pod.Annotations[podspec.SourceAnnotation] != source {
			require.Contains(t, now, pod, "a source lost a pod although only another source has changed")
		}
	}
}

func TestMerge_ConcurrentSourcesAndReaders(t *testing.T) {
	t.Parallel()
	told := 0 // without a lock, because calls of the Handler do not overlap
	m, err := podmanager.NewMerge(podmanager.MergeConfig{
		Sources: []string{"file", "http", "api"},
		Handler: func(_ context.Context, c podmanager.Change) { told += len(c.Ops) },
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, source := range []string{"file", "http", "api"} {
		wg.Go(func() {
			for i := range 100 {
				m.Source(source)(t.Context(), pods(podOf("a", source, fmt.Sprintf("i:%d", i)), podOf(source, source+"-own", "i:1")))
				m.UnreadSources()
				m.Conflicts()
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, told, 100)
	require.Len(t, m.Conflicts(), 2)
}
