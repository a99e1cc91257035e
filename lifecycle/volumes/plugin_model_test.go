package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// flaky is a volume type that attaches a disk for each volume, and fails before or after the
// attachment.
type flaky struct {
	name     string
	random   *rand.Rand
	attached map[string]bool
}

func (f *flaky) Name() string { return f.name }

func (f *flaky) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	return v.CSI != nil && v.CSI.Driver == f.name, nil
}

// fails makes one call in four fail.
func (f *flaky) fails() error {
	if f.random.IntN(4) == 0 {
		return errors.New("flaky")
	}
	return nil
}

func (f *flaky) SetUp(_ context.Context, r volumes.Request) (volumes.Mount, error) {
	if err := f.fails(); err != nil {
		return volumes.Mount{}, err
	}
	if err := os.Mkdir(r.Dir, 0o750); err != nil && !os.IsExist(err) {
		return volumes.Mount{}, err
	}
	if err := f.fails(); err != nil {
		return volumes.Mount{}, err
	}
	f.attached[r.Dir] = true
	return volumes.Mount{Path: r.Dir}, f.fails()
}

func (f *flaky) TearDown(_ context.Context, r volumes.Ref) error {
	if err := f.fails(); err != nil {
		return err
	}
	delete(f.attached, r.Dir)
	return f.fails()
}

func (f *flaky) Usage(_ context.Context, r volumes.Ref) (*volumes.Usage, error) {
	if !f.attached[r.Dir] {
		return nil, nil
	}
	return &volumes.Usage{Used: 1}, nil
}

// For any failures, a volume that Mount returned is attached until Unmount has succeeded, and
// nothing is attached after that, even if the agent was restarted in between.
func TestPlugin_RandomLives(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	attached := map[string]bool{}
	plugins := []volumes.Plugin{&flaky{"a", random, attached}, &flaky{"b", random, attached}}
	n := newNode(t, withPlugins(plugins...))
	ready := map[types.UID]map[string]string{}
	for step := range 500 {
		p := podOf(vol("one", csi("a")), vol("two", csi("b")), vol("three", csi("a")), vol("e", emptyDir()))
		p.UID = types.UID(fmt.Sprint("uid-", random.IntN(3)))
		says := fmt.Sprintf("seed %d, step %d, pod %s", seed, step, p.UID)
		switch random.IntN(5) {
		case 0:
			n = n.restarted(t, plugins...)
		case 1:
			if n.Unmount(t.Context(), p.UID) == nil {
				delete(ready, p.UID)
				require.NoDirExists(t, filepath.Join(n.root, "pods", string(p.UID)), says)
				for dir := range attached {
					require.NotContains(t, dir, "/"+string(p.UID)+"/", says)
				}
			} else {
				delete(ready, p.UID) // a failed unmount may have removed some volumes
			}
		case 2:
			err := n.Refresh(t.Context(), p)
			if err != nil {
				require.ErrorContains(t, err, "flaky", says)
			}
		default:
			if paths, err := n.Mount(t.Context(), p); err == nil {
				ready[p.UID] = paths
			} else {
				require.ErrorContains(t, err, "flaky", says)
			}
		}
		for uid, paths := range ready {
			require.Len(t, paths, 4)
			for name, path := range paths {
				require.DirExists(t, path, says)
				require.True(t, name == "e" || attached[path], "%s: volume %s of pod %s", says, name, uid)
			}
			usage, err := n.Usage(t.Context(), uid)
			require.NoError(t, err)
			require.Len(t, usage, 4, says)
		}
	}
}

// overlap records how many of its calls run concurrently.
type overlap struct {
	mu      sync.Mutex
	running map[types.UID]int
	errs    []error
	gate    chan struct{} // closed when a call for each of the two pods has started
	begun   map[types.UID]bool
	calls   atomic.Int64
}

func (*overlap) Name() string { return "example.com/overlap" }

func (*overlap) Supports(*corev1.Pod, *corev1.Volume) (bool, error) { return true, nil }

func (o *overlap) call(ctx context.Context, uid types.UID) error {
	o.calls.Add(1)
	o.mu.Lock()
	if o.running[uid]++; o.running[uid] > 1 {
		o.errs = append(o.errs, fmt.Errorf("two calls for pod %s at once", uid))
	}
	if !o.begun[uid] {
		if o.begun[uid] = true; len(o.begun) == 2 {
			close(o.gate)
		}
	}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.running[uid]--
		o.mu.Unlock()
	}()
	select {
	case <-o.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *overlap) SetUp(ctx context.Context, r volumes.Request) (volumes.Mount, error) {
	if err := os.Mkdir(r.Dir, 0o750); err != nil && !os.IsExist(err) {
		return volumes.Mount{}, err
	}
	return volumes.Mount{Path: r.Dir}, o.call(ctx, r.PodUID)
}

func (o *overlap) TearDown(ctx context.Context, r volumes.Ref) error { return o.call(ctx, r.PodUID) }

func (o *overlap) Usage(ctx context.Context, r volumes.Ref) (*volumes.Usage, error) {
	return nil, o.call(ctx, r.PodUID)
}

// The first call for each pod waits for the first call for the other pod, so both run
// concurrently.
func TestPlugin_CallsForOnePodWaitForEachOther(t *testing.T) {
	t.Parallel()
	o := &overlap{running: map[types.UID]int{}, begun: map[types.UID]bool{}, gate: make(chan struct{})}
	n := newNode(t, withPlugins(o))
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for i := range 40 {
		p := podOf(vol("v", csi("x")), vol("w", csi("x")))
		p.UID = []types.UID{"a", "b"}[i%2]
		all.Go(func() {
			var err error
			switch {
			case i < 2:
				_, err = n.Mount(t.Context(), p)
			case i%8 < 2:
				_, err = n.Usage(t.Context(), p.UID)
			case i%8 < 4:
				err = n.Unmount(t.Context(), p.UID)
			case i%8 < 6:
				err = n.Refresh(t.Context(), p)
			default:
				_, err = n.Mount(t.Context(), p)
			}
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(slices.Concat(errs, o.errs)...))
	require.Positive(t, o.calls.Load())
}

// A plugin that hangs blocks only its pod, and the call returns when ctx is done.
func TestPlugin_ThatHangsHoldsUpItsPodAlone(t *testing.T) {
	t.Parallel()
	o := &overlap{running: map[types.UID]int{}, begun: map[types.UID]bool{}, gate: make(chan struct{})}
	n := newNode(t, withPlugins(&disks{driver: "disks"}, o))
	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan error)
	go func() {
		_, err := n.Mount(ctx, podOf(vol("v", csi("x"))))
		hangs <- err
	}()
	other := podOf(vol("data", csi("disks")))
	other.UID = "other"
	_, err := n.Mount(t.Context(), other)
	require.NoError(t, err)
	require.NoError(t, n.Unmount(t.Context(), "other"))
	cancel()
	require.ErrorIs(t, <-hangs, context.Canceled)
}
