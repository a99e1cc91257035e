package nodeloop_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/internal/nodeloop"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// The functions of the loop that package agent needs.
var (
	_ nodeloop.Runtime       = (*fakecri.Node)(nil)
	_ images.ImageService    = (*nodeloop.Puller)(nil)
	_ lifecycle.AdmitHandler = (*nodeloop.Loop)(nil)
)

func newLoop(b *bed) (*nodeloop.Loop, error) { return nodeloop.New(b.cfg) }

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	err := nodeloop.Config{
		Host: &host.Host{}, MaxPods: -1,
		Reserved: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("-1Gi"), corev1.ResourceCPU: resource.MustParse("-1")},
	}.Validate()
	require.EqualError(t, err, `field NodeName is required
field Runtime is required
field Host.Facts is required
field State is required
field Pods.Active is required
field Pods.Evict is required
field Pods.Observed is required
field Pods.Await is required
field Pods.Find is required
field Pods.CleanedUp is required
field Pods.ContentRemovable is required
field Pods.RuntimeRemovable is required
field Pods.RunHook is required
field Pods.Ready is required
field Pods.RuntimeHealth is required
field MaxPods: -1 is negative
field Reserved: -1 of cpu is negative
field Reserved: -1Gi of memory is negative`)
	_, err = nodeloop.New(nodeloop.Config{})
	require.ErrorContains(t, err, "field Host is required")
}

func TestNew_ReportsThePoliciesOfAllManagers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.cfg.PodLogs = t.TempDir()
	b.cfg.Eviction = eviction.Policy{MaxParallelEvictions: -1}
	b.cfg.ImageGC = imagegc.Policy{HighThresholdPercent: new(101)}
	b.cfg.ContainerGC = containergc.Policy{MinAge: -1}
	b.cfg.Logs = logrotate.Policy{MaxFiles: 1}
	_, err := nodeloop.New(b.cfg)
	for _, part := range []string{"eviction: ", "image garbage collection: ", "container garbage collection: ", "log rotation: "} {
		require.ErrorContains(t, err, part)
	}
}

func TestNew_StartsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.make(t)
	b.Recompute()
	b.Relisted(errors.New("down"))
	b.EvaluateThresholds()
	b.ShutdownStarted()
	require.Zero(t, b.machine.asked)
	require.Empty(t, b.node.Calls())
	require.Len(t, b.Checks(), 7)
	require.True(t, b.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: &corev1.Pod{}}).Admit)
}

func TestRun_OnlyOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		stop := b.start(t)
		require.EqualError(t, b.Run(t.Context()), "the node loop can run only once")
		stop()
		require.EqualError(t, b.Run(t.Context()), "the node loop can run only once")
	})
}

// The host runs until all parts that use it have stopped.
func TestRun_TheHostStopsLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Eviction = diskBelow10Percent()
		b.pods.add("large")
		b.figures.pods = []eviction.PodStats{used("large", 50*gib, time.Now())}
		var mu sync.Mutex
		var order []string
		note := func(what string) { mu.Lock(); defer mu.Unlock(); order = append(order, what) }
		b.cfg.Host.Run = func(ctx context.Context) error {
			note("host runs")
			<-ctx.Done()
			note("host ends")
			return nil
		}
		b.pods.evict = func(ctx context.Context, _ *corev1.Pod) error {
			note("eviction runs")
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			note("eviction ends")
			return ctx.Err()
		}
		require.NoError(t, b.node.FillDisk(95*gib, 0))
		stop := b.start(t)
		wait(15 * time.Second)
		stop()
		require.Equal(t, []string{"host runs", "eviction runs", "eviction ends", "host ends"}, order)
	})
}

func TestRun_FailedPartStopsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		broken := errors.New("open /proc: permission denied")
		b.cfg.Host.Run = func(context.Context) error { time.Sleep(time.Minute); return broken }
		b.make(t)
		began := time.Now()
		err := b.Run(t.Context())
		require.ErrorIs(t, err, broken)
		require.EqualError(t, err, "host: open /proc: permission denied")
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// Run of a host may return before the agent stops.
func TestRun_HostReturnsEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Host.Run = func(context.Context) error { return nil }
		b.start(t)
		wait(time.Minute)
		require.Equal(t, corev1.ConditionTrue, b.ready().Status)
	})
}

// Each capability of the host is optional.
func TestRun_WithoutACapability(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*nodeloop.Config){
		"stats":     func(c *nodeloop.Config) { c.Host.Stats = nil },
		"image FS":  func(c *nodeloop.Config) { c.Host.ImageFS = nil },
		"waker":     func(c *nodeloop.Config) { c.Host.Waker = nil },
		"OOM":       func(c *nodeloop.Config) { c.Host.OOM = nil },
		"run":       func(c *nodeloop.Config) { c.Host.Run = nil },
		"events":    func(c *nodeloop.Config) { c.Events = nil },
		"pod logs":  func(c *nodeloop.Config) { c.PodLogs = "" },
		"callbacks": func(c *nodeloop.Config) { c.Changed, c.PressureChanged, c.Logger = nil, nil, nil },
		"all": func(c *nodeloop.Config) {
			c.Host = &host.Host{Facts: c.Host.Facts}
			c.Events, c.PodLogs, c.Changed, c.Logger = nil, "", nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.cfg.PodLogs = t.TempDir()
				b.cfg.Host.OOM = []oomwatch.Source{newKernelLog()}
				b.cfg.Host.Waker = waker{}
				b.cfg.Host.Run = func(ctx context.Context) error { <-ctx.Done(); return nil }
				b.cfg.Eviction = diskBelow10Percent()
				b.cfg.ImageGC = aged()
				remove(&b.cfg)
				b.run(t, "web")
				b.start(t)
				b.pull(t, "demo/own:1")
				wait(2 * time.Hour)
				require.NotContains(t, b.images(t), "docker.io/demo/own:1", "the image must be deleted by its age")
				require.NoError(t, b.node.FillDisk(95*gib, 0))
				wait(15 * time.Second)
				require.Equal(t, corev1.ConditionTrue, b.ready().Status, b.ready().Message)
				_, err := b.Plan(t.Context())
				require.NoError(t, err)
				for _, c := range b.Checks() {
					require.NoError(t, c.Err, c.Name)
				}
				summary, err := b.Summary(t.Context())
				pressure := condition(b.Node(), corev1.NodeDiskPressure).Status
				if name == "stats" || name == "all" {
					require.Equal(t, corev1.ConditionFalse, pressure)
					require.Equal(t, []string{"the host has no statistics: pods are not evicted"}, b.check(t, "eviction").Notes)
					require.ErrorIs(t, err, errors.ErrUnsupported)
					require.Nil(t, summary)
					return
				}
				require.Equal(t, corev1.ConditionTrue, pressure)
				require.NoError(t, err)
			})
		})
	}
}

// waker never triggers an evaluation.
type waker struct{}

func (waker) Watch(ctx context.Context, _ func() []eviction.Level, _ func(string)) error {
	<-ctx.Done()
	return nil
}

func TestChecks_AreInAFixedOrder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.make(t)
	var names []string
	for _, c := range b.Checks() {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{"runtime", "host", "eviction", "images", "containers", "logs", "oom"}, names)
}

func TestSummary_IsSharedForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.pods.add("web")
		b.pods.active = append(b.pods.active, nil)
		b.figures.slow = func() { time.Sleep(5 * time.Second) }
		b.make(t)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				s, err := b.Summary(t.Context())
				require.NoError(t, err)
				require.Equal(t, "summary 1 of 1 pods", s.Node.NodeName)
			})
		}
		all.Wait()
		wait(time.Second)
		s, err := b.Summary(t.Context())
		require.NoError(t, err)
		require.Equal(t, "summary 2 of 1 pods", s.Node.NodeName, "an expired summary must be measured again")
	})
}

func TestSummary_CancelledCallerDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.figures.slow = func() { time.Sleep(3 * time.Second) }
		b.make(t)
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { _, _ = b.Summary(impatient) })
		synctest.Wait()
		all.Go(func() {
			_, err := b.Summary(impatient)
			require.ErrorIs(t, err, context.DeadlineExceeded, "a caller that waits for another caller's summary must respect its own deadline")
		})
		s, err := b.Summary(t.Context())
		require.NoError(t, err)
		require.Equal(t, "summary 2 of 0 pods", s.Node.NodeName, "an incomplete summary must not be reused")
		all.Wait()
	})
}
