package imagegc_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// walk is a random walk over a fake node with a simple model of the protected images.
type walk struct {
	*rig
	mu     sync.Mutex // guards the fields that deletions change
	rng    *rand.Rand
	seed   uint64
	used   map[string][]string  // images by sandbox
	seen   map[string]time.Time // time of the first detection, by image
	leased map[string]time.Time // end of the lease, by image
	option func(*imagegc.Config)
}

// watched is a runtime that checks before each deletion whether it is permitted.
type watched struct {
	*fakecri.Node
	w *walk
}

func (n watched) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	images, err := w.node.ListImages(ctx, nil)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(images, func(i *runtimeapi.Image) bool { return i.Id == spec.Image })
	if i < 0 {
		return errors.New("it does not exist")
	}
	name, now := shortName(images[i].RepoTags), w.clock.Now()
	for _, used := range w.used {
		if slices.Contains(used, name) {
			w.t.Errorf("seed %d: %s is in use", w.seed, name)
		}
	}
	if images[i].Pinned || name == "kept:1" || now.Before(w.leased[name]) {
		w.t.Errorf("seed %d: %s is pinned, kept or leased", w.seed, name)
	}
	if first, ok := w.seen[name]; !ok || now.Sub(first) < 2*time.Minute {
		w.t.Errorf("seed %d: %s is young", w.seed, name)
	}
	err = n.Node.RemoveImage(ctx, spec)
	if err == nil {
		delete(w.seen, name)
	}
	return err
}

func newWalk(t *testing.T, seed uint64) *walk {
	t.Helper()
	w := &walk{
		rng: rand.New(rand.NewPCG(seed, 7)), seed: seed,
		used: map[string][]string{}, seen: map[string]time.Time{}, leased: map[string]time.Time{},
	}
	store := &memory{}
	w.option = func(c *imagegc.Config) {
		c.Images, c.State = watched{w.node, w}, store
		c.Preference = byName([]string{"kept:*"}, nil)
		if seed%2 == 0 {
			c.Policy.MaxAge = time.Hour
		}
	}
	w.rig = newRig(t, []string{"a:1 9GiB", "b:1 8GiB", "c:1 7GiB", "d:1 6GiB", "kept:1 5GiB", "pinned:1 4GiB pinned"})
	w.Manager = w.manager(w.option)
	return w
}

// note updates the model after a detection by the Manager.
func (w *walk) note() {
	images, err := w.node.ListImages(w.t.Context(), nil)
	require.NoError(w.t, err)
	there := map[string]bool{}
	for _, img := range images {
		name := shortName(img.RepoTags)
		there[name] = true
		if _, ok := w.seen[name]; !ok {
			w.seen[name] = w.clock.Now()
		}
	}
	maps.DeleteFunc(w.seen, func(name string, _ time.Time) bool { return !there[name] })
}

func (w *walk) image() string {
	return []string{"a:1", "b:1", "c:1", "d:1", "kept:1", "pinned:1"}[w.rng.IntN(6)]
}

func (w *walk) has(name string) bool {
	status, err := w.node.ImageStatus(w.t.Context(), &runtimeapi.ImageSpec{Image: name}, false)
	require.NoError(w.t, err)
	return status.GetImage() != nil
}

func (w *walk) step() {
	ctx := w.t.Context()
	switch w.rng.IntN(10) {
	case 0, 1:
		name, volume := w.image(), w.image()
		if w.has(name) && w.has(volume) {
			_, sandbox := w.create(name, volume)
			w.used[sandbox] = []string{name, volume}
		}
	case 2:
		for _, sandbox := range slices.Sorted(maps.Keys(w.used))[:min(1, len(w.used))] {
			require.NoError(w.t, w.node.RemovePodSandbox(ctx, sandbox))
			delete(w.used, sandbox)
		}
	case 3:
		_, err := w.node.PullImage(ctx, &runtimeapi.ImageSpec{Image: w.image()}, nil, nil)
		require.NoError(w.t, err)
	case 4:
		name := w.image()
		w.Acquire(name, "walker", 5*time.Minute)
		w.leased[name] = w.clock.Now().Add(5 * time.Minute)
	case 5:
		w.clock.Step(time.Duration(w.rng.IntN(40)) * time.Minute)
	case 6:
		u := w.node.DiskUsage()
		others := uint64(w.rng.IntN(60)) * gib
		require.NoError(w.t, w.node.FillDisk(min(others, u.CapacityBytes), 0))
	case 7:
		method := []string{"RemoveImage", "ListImages", "ContainerStatus", "ListContainers"}[w.rng.IntN(4)]
		require.NoError(w.t, w.node.Fail(method, fakecri.Fault{Times: 1, Err: fmt.Errorf("%s fails", method)}))
		_ = w.collect()
		w.node.ClearFaults("")
	case 8:
		w.Manager = w.manager(w.option) // a restart, after which leases are lost
		clear(w.leased)
		require.NoError(w.t, w.Detect(ctx))
	default:
		_ = w.DeleteUnusedImages(ctx)
		_, _ = w.Free(ctx, uint64(w.rng.IntN(20))*gib)
	}
	w.note()
	_ = w.collect()
	w.note()
}

func TestCollect_RandomWalksDeleteNothingInUse(t *testing.T) {
	for seed := range uint64(150) {
		w := newWalk(t, seed)
		w.note()
		require.NoError(t, w.Detect(t.Context()))
		for range 60 {
			w.step()
		}
		// Idempotent: at the same time nothing more is deleted.
		_ = w.DeleteUnusedImages(t.Context())
		there := w.there()
		_ = w.DeleteUnusedImages(t.Context())
		require.Equal(t, there, w.there(), "seed %d", seed)
		// Without users and leases, all images that may be deleted are deleted.
		for sandbox := range w.used {
			require.NoError(t, w.node.RemovePodSandbox(t.Context(), sandbox))
		}
		clear(w.used)
		clear(w.leased)
		require.NoError(t, w.Detect(t.Context()))
		w.note()
		w.clock.Step(2 * time.Hour)
		require.NoError(t, w.DeleteUnusedImages(t.Context()), "seed %d", seed)
		require.Subset(t, []string{"", "kept:1", "pinned:1", "kept:1 pinned:1"}, []string{w.there()}, "seed %d", seed)
	}
}
