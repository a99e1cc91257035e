package podworker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

var _ podworker.Cache = (*podcache.Cache)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// syncer records its calls and runs the functions in on, by the name of the call.
type syncer struct {
	mu    sync.Mutex
	calls []string
	turns []podworker.SyncRequest
	on    map[string]func(context.Context, podworker.SyncRequest) (bool, error)
}

func (s *syncer) do(ctx context.Context, name string, req podworker.SyncRequest) (bool, error) {
	uid := req.Status.UID
	if req.Pod != nil {
		uid = req.Pod.UID
	}
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprintf("%s %s", name, uid))
	s.turns = append(s.turns, req)
	on := s.on[name]
	s.mu.Unlock()
	if on == nil {
		return false, nil
	}
	return on(ctx, req)
}

func (s *syncer) SyncPod(ctx context.Context, req podworker.SyncRequest) (bool, error) {
	return s.do(ctx, "sync", req)
}

func (s *syncer) SyncTerminatingPod(ctx context.Context, req podworker.SyncRequest) error {
	_, err := s.do(ctx, "terminating", req)
	return err
}

func (s *syncer) SyncTerminatingRuntimePod(ctx context.Context, req podworker.SyncRequest) error {
	_, err := s.do(ctx, "runtime", req)
	return err
}

func (s *syncer) SyncTerminatedPod(ctx context.Context, req podworker.SyncRequest) error {
	_, err := s.do(ctx, "terminated", req)
	return err
}

// set makes the named calls run f from now on.
func (s *syncer) set(name string, f func(context.Context, podworker.SyncRequest) (bool, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on[name] = f
}

func (s *syncer) fail(name string, err error) {
	s.set(name, func(context.Context, podworker.SyncRequest) (bool, error) { return false, err })
}

// hang makes the named calls block until their ctx is done.
func (s *syncer) hang(name string) {
	s.set(name, func(ctx context.Context, _ podworker.SyncRequest) (bool, error) {
		<-ctx.Done()
		return false, ctx.Err()
	})
}

// log returns the calls since its last call.
func (s *syncer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *syncer) last() podworker.SyncRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns[len(s.turns)-1]
}

// instant is a cache whose entries are always fresh, unless it hangs.
type instant struct {
	mu    sync.Mutex
	pods  map[types.UID]*podcache.Status
	hangs bool
	// unasked is set if the runtime state of all pods is unknown.
	unasked bool
	err     error
	asked   []time.Time
}

func (c *instant) Get(uid types.UID) (*podcache.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.pods[uid]; s != nil {
		return s, c.err
	}
	return &podcache.Status{UID: uid}, c.err
}

func (c *instant) Known(types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.unasked
}

func (c *instant) GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*podcache.Status, error) {
	c.mu.Lock()
	c.asked = append(c.asked, t)
	hangs := c.hangs
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return c.Get(uid)
}

func (c *instant) set(f func(*instant)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

func running(uid types.UID) *podcache.Status {
	return &podcache.Status{UID: uid, Name: string(uid), Namespace: "ns", Containers: []*runtimeapi.ContainerStatus{
		{Id: "c", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}}
}

func newPod(uid types.UID, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid), Namespace: "ns"},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(30))},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// desired returns a function that returns the given pods.
func desired(pods ...*corev1.Pod) func() []*corev1.Pod {
	return func() []*corev1.Pod { return pods }
}

func static(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Name, p.Annotations = name, map[string]string{podspec.SourceAnnotation: "file"}
	}
}

func deleted(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, &seconds
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// bed is Workers in a bubble with fakes of all collaborators.
type bed struct {
	*podworker.Workers
	t       *testing.T
	sync    *syncer
	cache   *instant
	mu      sync.Mutex
	turns   []podworker.SyncInfo
	moved   []string
	ignored []string
	after   []types.UID
	// restarted are the UIDs of restarted pods.
	restarted []types.UID
	stop      func()
}

// inBubble runs f with running Workers, and stops them afterwards.
func inBubble(t *testing.T, f func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.run()
		f(b)
		b.stop()
	})
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{
		t:     t,
		sync:  &syncer{on: map[string]func(context.Context, podworker.SyncRequest) (bool, error){}},
		cache: &instant{pods: map[types.UID]*podcache.Status{}},
	}
	record := func(f func()) {
		b.mu.Lock()
		defer b.mu.Unlock()
		f()
	}
	var err error
	b.Workers, err = podworker.New(podworker.Config{
		Syncer:    b.sync,
		Cache:     b.cache,
		Jitter:    func() float64 { return 0 },
		AfterSync: func(uid types.UID) { record(func() { b.after = append(b.after, uid) }) },
		Observer: podworker.Observer{
			SyncEnded: func(i podworker.SyncInfo) { record(func() { b.turns = append(b.turns, i) }) },
			PhaseChanged: func(uid types.UID, _ *corev1.Pod, p podworker.Phase) {
				record(func() { b.moved = append(b.moved, fmt.Sprint(uid, " ", p)) })
			},
			Ignored:   func(_ podworker.Update, why string) { record(func() { b.ignored = append(b.ignored, why) }) },
			Restarted: func(p *corev1.Pod) { record(func() { b.restarted = append(b.restarted, p.UID) }) },
		},
	})
	require.NoError(t, err)
	return b
}

func (b *bed) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	b.stop = func() {
		cancel()
		require.NoError(b.t, <-done)
	}
	synctest.Wait()
}

// update applies one update and waits until it has taken effect.
func (b *bed) update(why podworker.UpdateType, p *corev1.Pod) {
	b.UpdatePod(podworker.Update{Type: why, Pod: p})
	synctest.Wait()
}

// kill calls KillPod in a new goroutine.
func (b *bed) kill(p *corev1.Pod, how podworker.KillOptions) <-chan error {
	done := make(chan error, 1)
	go func() { done <- b.KillPod(b.t.Context(), p, how) }()
	synctest.Wait()
	return done
}

func (b *bed) moves() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	moved := b.moved
	b.moved = nil
	return moved
}

// requireKilled requires that a kill has returned.
func requireKilled(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.NoError(t, err)
	default:
		require.Fail(t, "the kill has not returned")
	}
}

func requireUnreported(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.Fail(t, "the kill has returned", "%v", err)
	default:
	}
}
