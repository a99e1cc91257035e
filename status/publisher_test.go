package status_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/status"
)

func TestPublisherConfig(t *testing.T) {
	t.Parallel()
	err := status.PublisherConfig{
		Workers: -1, Timeout: -1, MinBackoff: time.Hour, MaxBackoff: time.Second,
	}.Validate()
	for _, want := range []string{
		"field Statuses is required", "field Sink is required", "field Workers: -1 is negative",
		"field Timeout: -1ns is negative", "field MinBackoff: 1h0m0s is more than MaxBackoff, 1s",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = status.NewPublisher(status.PublisherConfig{})
	require.ErrorContains(t, err, "status: invalid publisher config")
}

// sinkOf returns a publisher to a function, on a manager of its own.
func sinkOf(t *testing.T, fn status.SinkFunc, edits ...func(*status.PublisherConfig)) (*status.Manager, *status.Publisher) {
	t.Helper()
	m, err := status.New(status.Config{})
	require.NoError(t, err)
	cfg := status.PublisherConfig{Statuses: m, Sink: fn, Random: func() float64 { return 0 }}
	for _, edit := range edits {
		edit(&cfg)
	}
	p, err := status.NewPublisher(cfg)
	require.NoError(t, err)
	return m, p
}

// TestPublisher_HundredPodsNeedOneCallEach compares with the kubelet, which needs 1.87 s and two calls per pod for
// 100 pods at 5 ms per call, one call at a time.
func TestPublisher_HundredPodsNeedOneCallEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.latency = 5 * time.Millisecond
		n := newNode(t, a)
		n.start(t)
		start := time.Now()
		for _, pod := range numbered(100) {
			n.SetPodStatus(a.put(pod), simple("Running", "True"))
		}
		require.NoError(t, n.Flush(t.Context()))
		require.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
		require.Len(t, a.asked(), 100, "one call per pod")
		require.Len(t, n.published, 100)
		for _, p := range n.published {
			require.LessOrEqual(t, p.Latency, 70*time.Millisecond)
			require.Positive(t, p.Latency)
		}
	})
}

// TestPublisher_ThousandPodsChangeEverySecond changes 1,000 pods every second; the sink can publish 400.
// Memory is limited (one queued status per pod), the newest status is published, and urgent
// pods hardly wait.
func TestPublisher_ThousandPodsChangeEverySecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const call = 20 * time.Millisecond
		var (
			mu       sync.Mutex
			last     = map[types.UID]uint64{}
			urgent   []time.Duration
			normal   int
			deepest  int
			restless = numbered(1000)
		)
		m, p := sinkOf(t, func(_ context.Context, c status.Change) error {
			time.Sleep(call)
			mu.Lock()
			defer mu.Unlock()
			require.Greater(t, c.Version, last[c.Pod.UID], "a published version must not be older than the previous one")
			last[c.Pod.UID] = c.Version
			return nil
		}, func(c *status.PublisherConfig) {
			c.Observer = status.PublisherObserver{
				Published: func(p status.Publication) {
					mu.Lock()
					defer mu.Unlock()
					if p.Priority == status.PriorityUrgent {
						urgent = append(urgent, p.Latency)
					} else {
						normal++
					}
				},
				Queue: func(depth int) {
					mu.Lock()
					defer mu.Unlock()
					deepest = max(deepest, depth)
				},
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		for second := range 30 {
			for i, pod := range restless {
				s := simple("Running", "True")
				s.Message = fmt.Sprint(second)
				m.SetPodStatus(pod, s)
				if i%10 == 0 { // and ten deletions a second
					time.Sleep(10 * time.Millisecond)
				}
				if i%100 == 0 {
					name := fmt.Sprintf("deleted-%d-%d", second, i)
					m.SetPodStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
						UID: types.UID(name), Name: name, DeletionTimestamp: &metav1.Time{Time: time.Now()},
					}}, simple("Running", "False"))
				}
			}
		}
		require.NoError(t, p.Flush(ctx))
		cancel()
		require.NoError(t, <-done)
		require.Len(t, urgent, 300)
		slices.Sort(urgent)
		require.LessOrEqual(t, urgent[len(urgent)*99/100]-call, 50*time.Millisecond, "p99")
		require.LessOrEqual(t, deepest, 1000+10)
		require.Less(t, normal, 30*1000, "intermediate statuses must not be published")
		for _, pod := range restless {
			require.Equal(t, uint64(30), last[pod.UID], "the newest status must be published last")
		}
	})
}

func TestPublisher_Priorities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		m, p := sinkOf(t, func(_ context.Context, c status.Change) error {
			order = append(order, c.Pod.Name)
			return nil
		}, func(c *status.PublisherConfig) { c.Workers = 1 })
		pods := numbered(6)
		old := pods[5]
		m.SetPodStatus(old, simple("Pending", "False"))
		time.Sleep(6 * time.Second)
		m.SetPodStatus(pods[0], simple("Pending", "False"))
		m.SetPodStatus(pods[1], simple("Running", "True"))
		m.SetPodStatus(pods[2], simple("Failed", "False"))
		pods[3].DeletionTimestamp = &metav1.Time{Time: at(0)}
		m.SetPodStatus(pods[3], simple("Running", "False"))
		m.SetPodStatus(pods[4], simple("Running", "True"))
		m.SetPodStatus(pods[4], simple("Running", "False"))
		require.NoError(t, p.Sync(t.Context()))
		require.Equal(t, []string{"p2", "p3", "p5", "p1", "p4", "p0"}, order,
			"order: terminated, deleted, waiting for long, changed readiness, all others")
	})
}

func TestPublisher_BackOffIsPerPodAndDoubles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		start := time.Now()
		broken := true
		m, p := sinkOf(t, func(_ context.Context, c status.Change) error {
			if c.Pod.Name != "p0" {
				return nil
			}
			tries = append(tries, time.Since(start))
			if broken {
				return errors.New("broken")
			}
			return nil
		}, func(c *status.PublisherConfig) { c.MinBackoff, c.MaxBackoff = time.Second, 4*time.Second })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		pods := numbered(2)
		m.SetPodStatus(pods[0], simple("Running", "True"))
		for i := range 21 {
			time.Sleep(500 * time.Millisecond)
			s := simple("Running", "True")
			s.Message = fmt.Sprint(i)
			m.SetPodStatus(pods[0], s) // changes do not shorten the wait
		}
		synctest.Wait()
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}, tries)
		broken = false
		require.NoError(t, p.Flush(ctx))
		require.Equal(t, 11*time.Second, time.Since(start))
		broken = true
		m.SetPodStatus(pods[0], simple("Running", "False"))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []time.Duration{11 * time.Second, 11 * time.Second, 12 * time.Second}, tries[4:], "a success must reset the back-off")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestPublisher_Jitter(t *testing.T) {
	t.Parallel()
	var waits []time.Duration
	m, p := sinkOf(t, func(context.Context, status.Change) error { return errors.New("broken") }, func(c *status.PublisherConfig) {
		c.Random = func() float64 { return 0.5 }
		c.MinBackoff = time.Second
		c.Observer.Failed = func(_ *corev1.Pod, _ error, retryIn time.Duration) { waits = append(waits, retryIn) }
	})
	m.SetPodStatus(numbered(1)[0], simple("Running", "True"))
	require.ErrorContains(t, p.Sync(t.Context()), "pod ns/p0: broken")
	require.Equal(t, []time.Duration{750 * time.Millisecond}, waits)
	require.NoError(t, p.Sync(t.Context()), "the pod must stay in back-off")
}

func TestPublisher_OnePublicationOfAPodAtATimeInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		flying := false
		var versions []uint64
		m, p := sinkOf(t, func(_ context.Context, c status.Change) error {
			require.False(t, flying)
			flying = true
			time.Sleep(time.Second)
			flying = false
			versions = append(versions, c.Version)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		require.ErrorIs(t, p.Run(ctx), status.ErrRunning)
		pod := numbered(1)[0]
		for i := range 40 {
			s := simple("Running", "True")
			s.Message = fmt.Sprint(i)
			m.SetPodStatus(pod, s)
			time.Sleep(100*time.Millisecond + 1)
		}
		go func() { done <- p.Flush(ctx) }()
		require.NoError(t, p.Flush(ctx))
		require.NoError(t, <-done)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []uint64{1, 10, 20, 30, 40}, versions)
	})
}

func TestPublisher_LatencyPerVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var latencies []time.Duration
		fail := false
		m, p := sinkOf(t, func(context.Context, status.Change) error {
			time.Sleep(10 * time.Millisecond)
			if fail {
				fail = false
				return errors.New("once")
			}
			return nil
		}, func(c *status.PublisherConfig) {
			c.Observer.Published = func(p status.Publication) { latencies = append(latencies, p.Latency) }
		})
		pod := numbered(1)[0]
		for i := range 3 {
			fail = i == 2
			s := simple("Running", "True")
			s.Message = fmt.Sprint(i)
			m.SetPodStatus(pod, s)
			require.NoError(t, p.Flush(t.Context()))
			time.Sleep(4 * time.Second)
		}
		require.Equal(t, []time.Duration{10 * time.Millisecond, 10 * time.Millisecond, 520 * time.Millisecond}, latencies,
			"kubernetes#107896: the latency must not be the age of the pod")
	})
}

func TestFlush_WaitsForEarlierStatuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m *status.Manager
		var p *status.Publisher
		pod, calls := numbered(1)[0], 0
		m, p = sinkOf(t, func(ctx context.Context, c status.Change) error {
			if calls++; calls < 100 { // changes the status during each call
				s := simple("Running", "True")
				s.Message = fmt.Sprint(calls)
				m.SetPodStatus(pod, s)
			}
			return ctx.Err()
		})
		m.SetPodStatus(pod, simple("Running", "True"))
		require.NoError(t, p.Flush(t.Context()))
		require.Less(t, calls, 100)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := p.Flush(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "status: 1 of 1 pods not published")
		calls = 100
		require.NoError(t, p.Flush(t.Context()), "a cancelled flush must not cause a back-off")
	})
}

func TestPublisher_SinkForgetsAPodAfterItsPublication(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := status.New(status.Config{})
		require.NoError(t, err)
		sink := &slowSink{}
		p, err := status.NewPublisher(status.PublisherConfig{Statuses: m, Sink: sink})
		require.NoError(t, err)
		pods := numbered(2)
		m.SetPodStatus(pods[0], simple("Running", "True"))
		done := make(chan error)
		go func() { done <- p.Sync(t.Context()) }()
		synctest.Wait()
		m.SetPodStatus(pods[1], simple("Running", "True"))
		m.RemoveOrphanedStatuses(func(types.UID) bool { return false })
		require.NoError(t, <-done)
		require.Equal(t, []string{"forget uid-p1", "published p0", "forget uid-p0"}, sink.log)
		p.Trigger(pods[0].UID)
		require.NoError(t, p.Flush(t.Context()))
	})
}

type slowSink struct {
	mu  sync.Mutex
	log []string
}

func (s *slowSink) Publish(_ context.Context, c status.Change) error {
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "published "+c.Pod.Name)
	return nil
}

func (s *slowSink) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "forget "+string(uid))
}

// TestPublisher_OneSlowPod checks that a pod whose calls hang does not delay other pods.
func TestPublisher_OneSlowPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var others time.Duration
		start := time.Now()
		m, p := sinkOf(t, func(ctx context.Context, c status.Change) error {
			if c.Pod.Name == "p0" {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(5 * time.Millisecond)
			others = time.Since(start)
			return nil
		}, func(c *status.PublisherConfig) { c.Workers = 2 })
		for _, pod := range numbered(11) {
			m.SetPodStatus(pod, simple("Running", "True"))
		}
		require.ErrorIs(t, p.Sync(t.Context()), context.DeadlineExceeded)
		require.Equal(t, 50*time.Millisecond, others)
		require.Equal(t, 30*time.Second, time.Since(start))
	})
}
