package podsource_test

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

	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

// mergeBed is a Merge of a file, an http and an api source, and what it has told.
type mergeBed struct {
	*podsource.Merge
	t       *testing.T
	changes []podsource.Change
	log     bytes.Buffer
}

func newMergeBed(t *testing.T) *mergeBed {
	t.Helper()
	b := &mergeBed{t: t}
	var err error
	b.Merge, err = podsource.NewMerge(podsource.MergeConfig{
		Sources: []string{"file", "http", "api"},
		Handler: func(_ context.Context, c podsource.Change) { b.changes = append(b.changes, c) },
		Logger:  slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	require.NoError(t, err)
	return b
}

// set gives a source's pods and wants these operations.
func (b *mergeBed) set(source string, pods []*corev1.Pod, want ...string) {
	b.t.Helper()
	b.changes = nil
	require.NoError(b.t, b.Set(b.t.Context(), source, pods))
	var got []string
	for _, c := range b.changes {
		require.Equal(b.t, source, c.Source)
		got = append(got, describe(c.Ops)...)
	}
	require.Equal(b.t, want, got)
	require.Less(b.t, len(b.changes), 2)
}

func pods(list ...*corev1.Pod) []*corev1.Pod { return list }

func TestMergeConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := podsource.NewMerge(podsource.MergeConfig{})
	require.ErrorContains(t, err, "podsource: invalid config")
	require.ErrorContains(t, err, "field Sources is required")
	require.ErrorContains(t, err, "field Handler is required")
	err = podsource.MergeConfig{Sources: []string{"a", "", "a"}}.Validate()
	require.ErrorContains(t, err, "the name at 1 is empty")
	require.ErrorContains(t, err, `"a" is there twice`)
}

func TestEachSourceAnswersForItself(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	require.Equal(t, []string{"file", "http", "api"}, b.Unanswered())
	b.set("http", pods(podOf("a", "u1", "i:1")), "ADD u1")
	require.Equal(t, []string{"file", "api"}, b.changes[0].Unanswered)
	b.set("file", nil)
	require.Len(t, b.changes, 1, "no pods is an answer, and told once")
	require.Equal(t, []string{"api"}, b.changes[0].Unanswered)
	b.set("file", nil)
	require.Empty(t, b.changes)

	b.set("file", pods(podOf("b", "u2", "i:1")), "ADD u2")
	require.Equal(t, "b i:1, a i:1", images(b.changes[0].Pods), "in the order of the sources")
	b.set("http", nil, "REMOVE u1")
	require.Equal(t, "b i:1", images(b.changes[0].Pods))
	require.Equal(t, []string{"api"}, b.Unanswered(), "it can't keep others from ending their pods")

	require.ErrorContains(t, b.Set(t.Context(), "nobody", nil), `no source "nobody"`)
	b.Source("nobody")(t.Context(), nil)
	b.Source("api")(t.Context(), pods(podOf("c", "u3", "i:1")))
	require.Contains(t, b.log.String(), `level=ERROR msg="pods dropped" source=nobody`)
	require.Equal(t, 4, strings.Count(b.log.String(), `msg="pod operation"`), "each operation is one line")
	require.Contains(t, b.log.String(), `msg="pod operation" op=REMOVE pod=default/a podUID=u1 source=http`)
}

func TestAPodOfTwoSourcesStaysWithTheFirst(t *testing.T) {
	t.Parallel()
	for name, uid := range map[string]string{"another UID": "u2", "the same UID": "u1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newMergeBed(t)
			b.set("http", pods(podOf("a", "u1", "i:1")), "ADD u1")
			b.set("file", pods(podOf("a", uid, "i:2"), podOf("b", "u3", "i:1")), "ADD u3")
			require.Len(t, b.Problems(), 1)
			require.ErrorContains(t, b.Problems()[0], `metadata.name: Duplicate value: "default/a": source http has it`)
			b.set("http", pods(podOf("a", "u1", "i:3")), "UPDATE u1")

			// And goes over when that one gives it no more.
			if uid == "u1" {
				b.set("http", nil, "UPDATE u1")
			} else {
				b.set("http", nil, "REMOVE u1", "ADD u2")
			}
			require.Empty(t, b.Problems())
			b.set("http", pods(podOf("a", "u1", "i:3")))
			require.Len(t, b.Problems(), 1, "now it is the other's")
			require.Equal(t, 3, strings.Count(b.log.String(), "manifest problem"))
		})
	}
}

func TestAnEditKeepsTheNameWithItsSource(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	b.set("http", pods(podOf("a", "u1", "i:1")), "ADD u1")
	b.set("file", pods(podOf("a", "u2", "i:1")))
	b.set("http", pods(podOf("a", "u5", "i:2")), "REMOVE u1", "ADD u5")
	require.Len(t, b.Problems(), 1)
}

func TestTwoPodsOfOneNameFromOneSource(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	same := podOf("b", "u3", "i:1")
	b.set("api", pods(podOf("a", "u1", "i:1"), podOf("a", "u2", "i:1"), same, same), "ADD u1", "ADD u3")
	require.Len(t, b.Problems(), 2)
}

func TestAMirrorIsNotItsPod(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	mirror := podOf("a", "m1", "i:1")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "h"}
	b.set("file", pods(podOf("a", "u1", "i:1")), "ADD u1")
	b.set("api", pods(mirror), "ADD m1")
	require.Empty(t, b.Problems())
}

// What sources say in whatever order: the pods have each name and each UID once, no pod
// is missing whose name and UID are free, nobody loses a pod that it still gives, and
// the operations add up.
func TestMergeAgreesWithItsRules(t *testing.T) {
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
					if rnd.IntN(2) == 0 { // a name has several UIDs, and they have several names
						list = append(list, podOf(fmt.Sprintf("p%d", i), fmt.Sprintf("u%d", 4*rnd.IntN(2)+(i+rnd.IntN(2)*2)%4), fmt.Sprintf("i:%d", rnd.IntN(2))))
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
				require.Len(t, slices.Concat(slices.Collect(maps.Values(given))...), len(now)+len(b.Problems()))
				require.ElementsMatch(t, slices.Collect(maps.Values(known)), now)
				before = now
			}
		})
	}
}

func applyOps(t *testing.T, known map[string]*corev1.Pod, ops []podsource.Op) {
	t.Helper()
	for _, op := range ops {
		uid := string(op.Pod.UID)
		require.Equal(t, op.Type == podsource.Add, known[uid] == nil)
		known[uid] = op.Pod
		if op.Type == podsource.Remove {
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
	}
	for _, list := range given {
		for _, pod := range list {
			require.True(t, names[pod.Name] || uids[string(pod.UID)], "nobody has it, and it is not there")
		}
	}
	for _, pod := range before {
		for other, list := range given {
			if other != source && slices.Contains(list, pod) {
				require.Contains(t, now, pod, "another source has answered, not its own")
			}
		}
	}
}

func TestSourcesAndReadersTogether(t *testing.T) {
	t.Parallel()
	told := 0 // the Handler is called by one at a time
	m, err := podsource.NewMerge(podsource.MergeConfig{
		Sources: []string{"file", "http", "api"},
		Handler: func(_ context.Context, c podsource.Change) { told += len(c.Ops) },
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, source := range []string{"file", "http", "api"} {
		wg.Go(func() {
			for i := range 100 {
				m.Source(source)(t.Context(), pods(podOf("a", source, fmt.Sprintf("i:%d", i)), podOf(source, source+"-own", "i:1")))
				m.Unanswered()
				m.Problems()
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, told, 100)
	require.Len(t, m.Problems(), 2)
}
