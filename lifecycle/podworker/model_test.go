package podworker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// judge is a Syncer that fails, hangs and acts at random, and checks these invariants in each
// call:
//
//   - at most one sync per UID at a time
//   - phases only move forward until the pod is forgotten
//   - at most one started static pod per full name
//   - the grace period never increases
//   - the status is at least as new as the end of the last sync
type judge struct {
	t       *testing.T
	seed    uint64
	mu      sync.Mutex
	rng     *rand.Rand
	calm    chan struct{} // closed if everything must succeed from now on
	busy    map[types.UID]bool
	phase   map[types.UID]podworker.Phase
	grace   map[types.UID]time.Duration
	ended   map[types.UID]time.Time
	started map[string]types.UID
	seen    map[types.UID]time.Time
}

func (j *judge) turn(ctx context.Context, req podworker.SyncRequest, phase podworker.Phase) (bool, error) {
	uid := req.Status.UID
	j.enter(uid, req, phase)
	what, lasts := j.plan()
	var err error
	switch what {
	case 0:
		err = errors.New("fails")
	case 1:
		select { // hangs until its context is done or the faults end
		case <-ctx.Done():
			err = ctx.Err()
		case <-j.calm:
		}
	case 2:
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(lasts):
		}
	case 3:
		err = &podworker.RetryError{At: time.Now().Add(lasts)}
	case 4:
		time.Sleep(lasts) // ignores its ctx
		req.Acted()
	default:
	}
	j.leave(uid, req, phase, err)
	return what == 4 && phase == podworker.Syncing, err
}

// plan chooses the result of a sync and its duration at random.
func (j *judge) plan() (what int, lasts time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.calm:
		return 9, 0
	default:
	}
	return j.rng.IntN(8), time.Duration(j.rng.IntN(20_000)) * time.Millisecond
}

func (j *judge) enter(uid types.UID, req podworker.SyncRequest, phase podworker.Phase) {
	j.mu.Lock()
	defer j.mu.Unlock()
	require.False(j.t, j.busy[uid], "seed %d: concurrent syncs of %s", j.seed, uid)
	j.busy[uid] = true
	require.GreaterOrEqual(j.t, phase, j.phase[uid], "seed %d: the phase of %s went back", j.seed, uid)
	j.phase[uid] = phase
	if !req.Status.Stale {
		require.False(j.t, j.seen[uid].Before(j.ended[uid]), "seed %d: the status of %s is outdated", j.seed, uid)
	}
	if phase == podworker.Syncing {
		require.False(j.t, req.Status.Stale, "seed %d: %s starts with a stale status", j.seed, uid)
		if podspec.IsStatic(req.Pod) {
			name := podspec.FullName(req.Pod)
			other, taken := j.started[name]
			require.True(j.t, !taken || other == uid, "seed %d: %s and %s have the same full name", j.seed, uid, other)
			j.started[name] = uid
		}
		return
	}
	require.GreaterOrEqual(j.t, req.Grace, time.Duration(0))
	if before, ok := j.grace[uid]; ok {
		require.LessOrEqual(j.t, req.Grace, before, "seed %d: the grace period of %s increased", j.seed, uid)
	}
	j.grace[uid] = req.Grace
}

func (j *judge) leave(uid types.UID, req podworker.SyncRequest, phase podworker.Phase, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.busy[uid], j.ended[uid] = false, time.Now()
	gone := err == nil && (phase == podworker.Terminated || req.Pod == nil)
	if !gone {
		return
	}
	for name, who := range j.started {
		if who == uid {
			delete(j.started, name)
		}
	}
	delete(j.phase, uid)
	delete(j.grace, uid)
}

func (j *judge) SyncPod(ctx context.Context, req podworker.SyncRequest) (bool, error) {
	return j.turn(ctx, req, podworker.Syncing)
}

func (j *judge) SyncTerminatingPod(ctx context.Context, req podworker.SyncRequest) error {
	_, err := j.turn(ctx, req, podworker.Terminating)
	return err
}

func (j *judge) SyncTerminatingRuntimePod(ctx context.Context, req podworker.SyncRequest) error {
	_, err := j.turn(ctx, req, podworker.Terminating)
	return err
}

func (j *judge) SyncTerminatedPod(ctx context.Context, req podworker.SyncRequest) error {
	_, err := j.turn(ctx, req, podworker.Terminated)
	return err
}

// relisted is a cache that becomes fresh once a second, and hangs sometimes.
type relisted struct {
	*podcache.Cache
	j *judge
}

func (c relisted) GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*podcache.Status, error) {
	s, err := c.Cache.GetNewerThan(ctx, uid, t)
	if err == nil {
		c.j.mu.Lock()
		c.j.seen[uid] = time.Now()
		c.j.mu.Unlock()
	}
	return s, err
}

// Updates, kills, evictions, runtime statuses, SyncKnownPods, and pods that are created again
// with the same UID or name, in any order and concurrently. Every fourth agent restarts its
// Workers repeatedly.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { randomLives(t, seed) })
	}
}

func randomLives(t *testing.T, seed uint64) {
	t.Helper()
	j := &judge{
		t: t, seed: seed, calm: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 7)),
		busy: map[types.UID]bool{}, phase: map[types.UID]podworker.Phase{}, grace: map[types.UID]time.Duration{},
		ended: map[types.UID]time.Time{}, started: map[string]types.UID{}, seen: map[types.UID]time.Time{},
	}
	cache := podcache.New()
	w, err := podworker.New(podworker.Config{Syncer: j, Cache: relisted{cache, j}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() {
		for ctx.Err() == nil {
			run, end := ctx, context.CancelFunc(func() {})
			if seed%4 == 0 {
				run, end = context.WithTimeout(ctx, 17*time.Second)
			}
			require.NoError(t, w.Run(run))
			end()
		}
	})
	background.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if seed%3 != 0 || n%20 < 10 { // every third runtime does not respond for periods of 10 s
				cache.UpdateTime(time.Now())
			}
			time.Sleep(time.Second)
		}
	})

	rng := rand.New(rand.NewPCG(seed, 11))
	desired := map[types.UID]*corev1.Pod{}
	var kills sync.WaitGroup
	var reported, asked int
	var mu sync.Mutex
	for range 120 {
		pod := randomPod(rng)
		switch rng.IntN(11) {
		case 0, 1:
			desired[pod.UID] = pod
			w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
		case 2:
			w.UpdatePod(podworker.Update{Type: podworker.Change, Pod: pod})
		case 3:
			w.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
		case 4:
			delete(desired, pod.UID)
			w.UpdatePod(podworker.Update{Type: podworker.Kill, Running: running(pod.UID)})
		case 8:
			w.KillOrphans([]*podcache.Status{running(pod.UID), running("pod0")})
		case 9: // the pod is removed and created again at once
			desired[pod.UID] = pod
			w.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
			w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
		case 10: // the pod is created during the computation of the desired pods
			delete(desired, pod.UID)
			known := w.SyncKnownPods(func() []*corev1.Pod {
				w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
				return listed(desired)
			})
			require.False(t, known[pod.UID].Orphan, "seed %d: %s is terminated because of a list that is older than the pod", seed, pod.UID)
			desired[pod.UID] = pod
			j.forget(known)
		case 5, 6:
			how := podworker.KillOptions{Evict: rng.IntN(2) == 0, Grace: new(time.Duration(rng.IntN(40)) * time.Second)}
			limit := time.Duration(rng.IntN(60)) * time.Second
			asked++
			kills.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				if err := w.KillPod(ctx, pod, how); err != nil && !errors.Is(err, podworker.ErrStopped) {
					assert.ErrorIs(t, err, context.DeadlineExceeded, "seed %d", seed)
				}
				mu.Lock()
				defer mu.Unlock()
				reported++
			})
		case 7:
			sweep(w, j, desired)
		}
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
	}
	// Every kill returns exactly once: the channel has a buffer for one result, and a second
	// result would block while the mutex is held.
	kills.Wait()
	require.Equal(t, asked, reported)

	// At the end no pod is desired, and nothing is left.
	close(j.calm)
	for uid := range podUIDs() {
		w.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: newPod(uid), Kill: podworker.KillOptions{Grace: new(time.Second)}})
	}
	for range 60 {
		time.Sleep(2 * time.Second)
		sweep(w, j, nil)
	}
	pods, lines, due := w.Pods()
	require.Zero(t, pods+lines+due+w.Past(), "seed %d: state was left", seed)
	require.Empty(t, j.started, "seed %d", seed)
}

// sweep calls SyncKnownPods with the desired pods, and creates the pods that were forgotten.
func sweep(w *podworker.Workers, j *judge, desired map[types.UID]*corev1.Pod) {
	all := listed(desired)
	known := w.SyncKnownPods(func() []*corev1.Pod { return all })
	j.forget(known)
	for _, p := range all {
		if _, ok := known[p.UID]; !ok {
			w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
		}
	}
}

// listed returns the pods in a fixed order.
func listed(desired map[types.UID]*corev1.Pod) (all []*corev1.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(desired)) {
		all = append(all, desired[uid])
	}
	return all
}

// forget resets the checks for pods that are no longer known.
func (j *judge) forget(known map[types.UID]podworker.Known) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid := range podUIDs() {
		if _, ok := known[uid]; !ok && !j.busy[uid] {
			delete(j.phase, uid)
			delete(j.grace, uid)
		}
	}
}

func podUIDs() func(func(types.UID) bool) {
	return func(yield func(types.UID) bool) {
		for i := range 8 {
			if !yield(types.UID(fmt.Sprint("pod", i))) {
				return
			}
		}
	}
}

// randomPod returns one of eight pods. Half of them are static pods with the same full name.
func randomPod(rng *rand.Rand) *corev1.Pod {
	i := rng.IntN(8)
	var edits []func(*corev1.Pod)
	if i%2 == 0 {
		edits = append(edits, static("web"))
	}
	switch rng.IntN(12) {
	case 0:
		edits = append(edits, deleted(int64(rng.IntN(30))))
	case 1:
		edits = append(edits, phase(corev1.PodFailed))
	}
	return newPod(types.UID(fmt.Sprint("pod", i)), edits...)
}
