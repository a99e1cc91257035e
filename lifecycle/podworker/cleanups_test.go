package podworker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// cleanup is one pass of an agent's housekeeping: SyncKnownPods, the creation of desired pods
// that are unknown, and KillOrphans. It returns the known pods, and clears the log of Syncer
// calls.
func (b *bed) cleanup(want ...*corev1.Pod) map[types.UID]podworker.Known {
	b.sync.log()
	known := b.SyncKnownPods(desired(want...))
	for _, p := range want {
		if _, ok := known[p.UID]; !ok {
			b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
		}
	}
	var found []*podcache.Status
	b.cache.set(func(c *instant) {
		for _, s := range c.pods {
			found = append(found, s)
		}
	})
	b.KillOrphans(found)
	synctest.Wait()
	return known
}

func (b *bed) runs(uid types.UID) { b.cache.set(func(c *instant) { c.pods[uid] = running(uid) }) }
func (b *bed) isGone(uid types.UID) {
	b.cache.set(func(c *instant) { delete(c.pods, uid) })
}

// The kubelet's test cases for its housekeeping.
func TestCleanups(t *testing.T) {
	pod, stopped := newPod("a"), errors.New("cannot stop")
	waiting := func(uid types.UID) *corev1.Pod { return newPod(uid, static("web")) }
	for name, f := range map[string]func(*bed){
		"an unknown running pod is killed": func(b *bed) {
			b.runs("a")
			b.cleanup()
			require.Equal(t, []string{"runtime a"}, b.sync.log())
			require.Equal(t, time.Second, b.sync.last().Grace)
		},
		"an unknown pod that could not be killed is killed again": func(b *bed) {
			b.runs("a")
			b.sync.fail("runtime", stopped)
			b.cleanup()
			require.Equal(t, []string{"runtime a"}, b.sync.log())
			b.cleanup()
			require.Equal(t, []string{"runtime a"}, b.sync.log())
			b.sync.set("runtime", nil)
			b.cleanup()
			require.Equal(t, []string{"runtime a"}, b.sync.log())
			b.isGone("a")
			require.Empty(t, b.cleanup())
		},
		"a pod that could not be stopped and is not desired is tried again": func(b *bed) {
			b.sync.fail("terminating", stopped)
			b.update(podworker.Create, pod)
			b.update(podworker.Kill, pod)
			b.cleanup()
			require.Equal(t, []string{"terminating a"}, b.sync.log())
		},
		"a pod that is desired and ends is left to its back-off": func(b *bed) {
			b.sync.fail("terminating", stopped)
			b.update(podworker.Create, pod)
			b.update(podworker.Kill, pod)
			b.runs("a")
			b.cleanup(pod)
			require.Empty(t, b.sync.log())
		},
		"a pod that is not desired any more ends": func(b *bed) {
			b.update(podworker.Create, pod)
			b.runs("a")
			b.cleanup()
			require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
		},
		"a pod that is not desired any more and does not run ends": func(b *bed) {
			b.update(podworker.Create, pod)
			b.cleanup()
			require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
		},
		"an unknown desired pod that runs is synced": func(b *bed) {
			b.runs("a")
			b.cleanup(pod)
			require.Equal(t, []string{"sync a"}, b.sync.log())
		},
		"a desired pod that has ended is cleaned up after": func(b *bed) {
			b.cleanup(newPod("a", phase(corev1.PodFailed)))
			require.Equal(t, []string{"terminated a"}, b.sync.log())
		},
		"a desired pod that has ended and runs is stopped": func(b *bed) {
			b.runs("a")
			b.cleanup(newPod("a", phase(corev1.PodSucceeded)))
			require.Equal(t, []string{"terminating a", "terminated a"}, b.sync.log())
		},
		"a static pod that never started is forgotten": func(b *bed) {
			b.update(podworker.Create, waiting("a"))
			b.update(podworker.Create, waiting("b"))
			require.NotContains(t, b.cleanup(waiting("a")), types.UID("b"))
			require.Empty(t, b.sync.log())
		},
		"a static pod that was killed before it started is forgotten": func(b *bed) {
			b.update(podworker.Create, waiting("a"))
			b.update(podworker.Create, waiting("b"))
			b.update(podworker.Kill, waiting("b"))
			require.NotContains(t, b.cleanup(waiting("a")), types.UID("b"))
			require.Empty(t, b.sync.log())
		},
		"a static pod that never started, but runs, is killed": func(b *bed) {
			b.update(podworker.Create, waiting("a"))
			b.update(podworker.Create, waiting("b"))
			b.runs("b")
			b.cleanup(waiting("a"))
			require.Equal(t, []string{"runtime b"}, b.sync.log())
		},
		"a pod that was created again under its UID starts when the previous pod has ended": func(b *bed) {
			b.sync.hang("terminating")
			b.update(podworker.Create, pod)
			b.update(podworker.Kill, pod)
			b.update(podworker.Create, pod)
			require.Contains(t, b.cleanup(pod), pod.UID)
			require.Empty(t, b.sync.log())
			b.sync.set("terminating", nil)
			b.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod, Kill: podworker.KillOptions{Grace: new(time.Second)}})
			synctest.Wait()
			require.NotContains(t, b.cleanup(pod), pod.UID)
			require.Equal(t, []string{"sync a"}, b.sync.log(), "the pod must be created again in the same pass")
		},
		"a finished pod that a late list shows running is left alone": func(b *bed) {
			b.update(podworker.Create, pod)
			b.update(podworker.Kill, pod)
			b.runs("a")
			b.cleanup(pod)
			require.Empty(t, b.sync.log())
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, f) })
	}
}

func TestKillOrphans_NothingBeforeTheFirstSyncKnownPods(t *testing.T) {
	inBubble(t, func(b *bed) {
		found := []*podcache.Status{nil, {}, {UID: "stopped"}, running("a")}
		require.Empty(t, b.KillOrphans(found))
		b.SyncKnownPods(desired())
		require.Equal(t, []types.UID{"a"}, b.KillOrphans(found))
		synctest.Wait()
		require.Equal(t, []string{"runtime a"}, b.sync.log())
	})
}

// SyncKnownPods forgets pods that have finished or never started, if they are not desired or
// were created again.
func TestForgetRules(t *testing.T) {
	hold := func(b *bed, call string, p *corev1.Pod) {
		b.sync.fail(call, errors.New("no"))
		b.update(podworker.Create, p)
		b.update(podworker.Kill, p)
	}
	pod, web := newPod("a"), func(uid types.UID) *corev1.Pod { return newPod(uid, static("web")) }
	inLine := func(b *bed) {
		b.update(podworker.Create, web("first"))
		b.update(podworker.Create, web("a"))
	}
	finish := func(b *bed) { b.update(podworker.Create, pod); b.update(podworker.Kill, pod) }
	for _, tt := range []struct {
		name                  string
		do                    func(*bed)
		ifDesired, ifOrphaned bool // whether it's forgotten
	}{
		{"syncing", func(b *bed) { b.update(podworker.Create, pod) }, false, false},
		{"terminating", func(b *bed) { hold(b, "terminating", pod) }, false, false},
		{"terminating, and asked for again", func(b *bed) { hold(b, "terminating", pod); b.update(podworker.Create, pod) }, false, false},
		{"terminated", func(b *bed) { hold(b, "terminated", pod) }, false, false},
		{"terminated, and asked for again", func(b *bed) { hold(b, "terminated", pod); b.update(podworker.Create, pod) }, false, false},
		{"finished", finish, false, true},
		{"finished, and asked for again", func(b *bed) { finish(b); b.update(podworker.Create, pod) }, true, true},
		{"in line", inLine, false, true},
		{"in line, and killed", func(b *bed) { inLine(b); b.update(podworker.Kill, web("a")) }, false, true},
		{"in line, but seen in the runtime", func(b *bed) {
			inLine(b)
			b.sync.hang("terminating")
			b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: running("a")})
		}, false, false},
		{"only in the runtime", func(b *bed) {
			b.sync.fail("runtime", errors.New("no"))
			b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: running("a")})
		}, false, false},
	} {
		for _, orphan := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				inBubble(t, func(b *bed) {
					tt.do(b)
					synctest.Wait()
					want := []*corev1.Pod{web("first"), pod}
					forgotten := tt.ifDesired
					if orphan {
						want, forgotten = want[:1], tt.ifOrphaned
					}
					_, known := b.SyncKnownPods(desired(want...))["a"]
					require.Equal(t, forgotten, !known, "orphan: %v", orphan)
				})
			})
		}
	}
}

// A pod that is created and updated in a burst receives its last update, for any activity of
// other pods.
func TestUpdatePod_TwentyPodsGetTheirLastUpdate(t *testing.T) {
	inBubble(t, func(b *bed) {
		runs, last := map[types.UID]int{}, map[types.UID]int64{}
		b.sync.set("sync", func(_ context.Context, req podworker.SyncRequest) (bool, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			runs[req.Pod.UID]++
			last[req.Pod.UID] = req.Pod.Generation
			return false, nil
		})
		for i, p := range manyPods(20) {
			go func() {
				for n := range i + 1 {
					next := newPod(p.UID, func(p *corev1.Pod) { p.Generation = int64(n) })
					b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: next})
				}
			}()
		}
		synctest.Wait()
		for i, p := range manyPods(20) {
			require.EqualValues(t, i, last[p.UID])
			require.LessOrEqual(t, runs[p.UID], i+1)
		}
	})
}
