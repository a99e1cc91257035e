package eviction_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/eviction"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

// epoch is the start time of tests.
func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// bytesOf parses amounts such as "1Gi".
func bytesOf(tb testing.TB, s string) int64 {
	tb.Helper()
	q, err := resource.ParseQuantity(s)
	require.NoError(tb, err)
	return q.Value()
}

type podOption func(*corev1.Pod)

func newPod(name string, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Generation: 7},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
	for _, o := range options {
		o(pod)
	}
	return pod
}

func priority(n int32) podOption { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func qos(class corev1.PodQOSClass) podOption {
	return func(p *corev1.Pod) { p.Status.QOSClass = class }
}

func grace(seconds int64) podOption {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
}

// asks sets the requests of the first container, and limits sets its limits.
func asks(name corev1.ResourceName, amount string) podOption {
	return func(p *corev1.Pod) { set(&p.Spec.Containers[0].Resources.Requests, name, amount) }
}

func limited(name corev1.ResourceName, amount string) podOption {
	return func(p *corev1.Pod) { set(&p.Spec.Containers[0].Resources.Limits, name, amount) }
}

func set(list *corev1.ResourceList, name corev1.ResourceName, amount string) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = resource.MustParse(amount)
}

func emptyDir(name, limit string, medium corev1.StorageMedium) podOption {
	return func(p *corev1.Pod) {
		e := &corev1.EmptyDirVolumeSource{Medium: medium}
		if limit != "" {
			q := resource.MustParse(limit)
			e.SizeLimit = &q
		}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: e}})
	}
}

func hostPath(name string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}})
	}
}

// used is a usage that was measured at epoch.
func used(n int64) eviction.Usage { return eviction.Usage{Value: n, Time: epoch()} }

func memoryStats(pod *corev1.Pod, n int64) eviction.PodStats {
	return eviction.PodStats{
		UID: pod.UID, Memory: used(n),
		Containers: []eviction.ContainerStats{{Name: "main", Memory: used(n)}},
	}
}

// diskStats returns stats with a writable layer, logs, and one volume named data.
func diskStats(pod *corev1.Pod, rootfs, logs, volume int64) eviction.PodStats {
	disk := func(n int64) eviction.DiskUsage { return eviction.DiskUsage{Bytes: used(n), Inodes: used(n)} }
	return eviction.PodStats{
		UID:        pod.UID,
		Containers: []eviction.ContainerStats{{Name: "main", Rootfs: disk(rootfs), Logs: disk(logs)}},
		Volumes:    []eviction.VolumeStats{{Name: "data", DiskUsage: disk(volume)}},
	}
}

func byUID(all ...eviction.PodStats) map[types.UID]*eviction.PodStats {
	m := map[types.UID]*eviction.PodStats{}
	for i := range all {
		m[all[i].UID] = &all[i]
	}
	return m
}

func hard(s eviction.Signal, n int64) eviction.Threshold {
	return eviction.Threshold{Signal: s, Value: eviction.Value{Quantity: n}}
}

func soft(s eviction.Signal, n int64, grace time.Duration) eviction.Threshold {
	return eviction.Threshold{Signal: s, Value: eviction.Value{Quantity: n}, GracePeriod: grace}
}

func saw(s eviction.Signal, available, capacity int64) eviction.Observation {
	return eviction.Observation{Signal: s, Available: available, Capacity: capacity}
}

func names(all []eviction.Candidate) (out []string) {
	for _, c := range all {
		out = append(out, c.Pod.Name)
	}
	return out
}

func victims(d eviction.Decision) (out []string) {
	for _, v := range d.Victims {
		out = append(out, v.Pod.Name)
	}
	return out
}

// node is a node in a test: its stats, and a record of the actions on it.
type node struct {
	t     testing.TB
	clock *testingclock.FakeClock

	mu        sync.Mutex
	now       func() time.Time
	obs       map[eviction.Signal]eviction.Observation
	layout    eviction.Layout
	pods      []*corev1.Pod
	stats     []eviction.PodStats
	nodeErr   error
	podsErr   error
	podsAsked []*corev1.Pod // pods passed to the last call
	podsAt    time.Time     // time of the pod figures; zero means the time of the call
	calls     []string
	ends      map[string]chan error // channels that end kills in progress, by pod
	instant   bool                  // kills and reclaims return at once
	gc        chan error            // channel that ends a reclaim
	lines     []string
}

func newNode(tb testing.TB) *node {
	tb.Helper()
	c := testingclock.NewFakeClock(epoch())
	return &node{
		t: tb, clock: c, now: c.Now, layout: eviction.SingleFS,
		obs: map[eviction.Signal]eviction.Observation{}, ends: map[string]chan error{}, gc: make(chan error),
	}
}

func (n *node) saw(s eviction.Signal, available, capacity int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.obs[s] = saw(s, available, capacity)
}

func (n *node) Node(context.Context) (eviction.NodeStats, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stats := eviction.NodeStats{Layout: n.layout}
	for _, o := range n.obs {
		o.Time = n.now()
		stats.Observations = append(stats.Observations, o)
	}
	slices.SortFunc(stats.Observations, func(a, b eviction.Observation) int { return strings.Compare(string(a.Signal), string(b.Signal)) })
	return stats, n.nodeErr
}

func (n *node) Pods(_ context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.podsAsked = pods
	at := n.podsAt
	if at.IsZero() {
		at = n.now()
	}
	var all []eviction.PodStats
	for _, s := range n.stats {
		all = append(all, measuredAt(s, at))
	}
	return all, n.podsErr
}

// measuredAt returns stats whose values all have this time.
func measuredAt(s eviction.PodStats, at time.Time) eviction.PodStats {
	stamp := func(all ...*eviction.Usage) {
		for _, u := range all {
			if u.Known() {
				u.Time = at
			}
		}
	}
	s.Containers, s.Volumes = slices.Clone(s.Containers), slices.Clone(s.Volumes)
	stamp(&s.Memory, &s.Processes, &s.Other.Bytes, &s.Other.Inodes)
	for i := range s.Containers {
		c := &s.Containers[i]
		stamp(&c.Memory, &c.Rootfs.Bytes, &c.Rootfs.Inodes, &c.Logs.Bytes, &c.Logs.Inodes)
	}
	for i := range s.Volumes {
		stamp(&s.Volumes[i].Bytes, &s.Volumes[i].Inodes)
	}
	return s
}

func (n *node) active() []*corev1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.pods)
}

func (n *node) add(pod *corev1.Pod, stats eviction.PodStats) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = append(n.pods, pod)
	n.stats = append(n.stats, stats)
}

func (n *node) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = slices.DeleteFunc(n.pods, func(p *corev1.Pod) bool { return p.Name == name })
}

func (n *node) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last call of take.
func (n *node) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

func (n *node) Kill(ctx context.Context, pod *corev1.Pod, e eviction.Eviction) error {
	n.mu.Lock()
	n.calls = append(n.calls, fmt.Sprintf("kill %s %ds", pod.Name, e.GracePeriodSeconds))
	end := n.ends[pod.Name]
	if end == nil {
		end = make(chan error, 1)
		n.ends[pod.Name] = end
	}
	instant := n.instant
	n.mu.Unlock()
	if instant {
		return nil
	}
	select {
	case err := <-end:
		end <- err // a concurrent call for the same pod also receives the result
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end lets the kills of the pod return.
func (n *node) end(name string, err error) {
	n.mu.Lock()
	end := n.ends[name]
	delete(n.ends, name)
	n.mu.Unlock()
	end <- err
}

func (n *node) reclaimed(ctx context.Context, what string) error {
	n.mu.Lock()
	n.calls = append(n.calls, what)
	instant := n.instant
	n.mu.Unlock()
	if instant {
		return nil
	}
	select {
	case err := <-n.gc:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *node) DeleteUnusedImages(ctx context.Context, need eviction.ReclaimPlan) error {
	return n.reclaimed(ctx, fmt.Sprintf("images %s %d", need.Signal, need.Amount))
}

func (n *node) DeleteAllUnusedContainers(ctx context.Context) error {
	return n.reclaimed(ctx, "containers")
}

func (n *node) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	who := "node"
	if pod, ok := object.(*corev1.Pod); ok {
		who = "pod " + pod.Name
	}
	n.note("event %s %s %s: %s", who, eventtype, reason, fmt.Sprintf(messageFmt, args...))
}

// waitCalls waits for calls of collaborators, which run on their own goroutines, and
// returns them sorted.
func (n *node) waitCalls(count int) []string {
	n.t.Helper()
	for range 1_000_000 {
		n.mu.Lock()
		if len(n.calls) >= count {
			calls := n.calls
			n.calls = nil
			n.mu.Unlock()
			slices.Sort(calls)
			return calls
		}
		n.mu.Unlock()
		yield()
	}
	n.t.Fatalf("%d calls never came", count)
	return nil
}

func (n *node) config(thresholds ...eviction.Threshold) eviction.Config {
	return eviction.Config{
		Stats: n, Pods: n.active, Killer: n, Policy: eviction.Policy{Thresholds: thresholds},
		Clock: n.clock, Events: n, Node: &corev1.ObjectReference{Kind: "Node", Name: "n1"},
		Observer: eviction.Observer{
			Evicted: func(pod *corev1.Pod, e eviction.Eviction, _ time.Duration, err error) {
				n.note("evicted %s for %s: %v", pod.Name, e.Signal, err)
			},
			Overdue: func(pod *corev1.Pod, _ eviction.Eviction) { n.note("overdue %s", pod.Name) },
			Reclaimed: func(r eviction.ReclaimPlan, _ time.Duration, err error) {
				n.note("reclaimed %s: %v", r.Action, err)
			},
			ConditionsChanged: func(c []corev1.NodeConditionType) { n.note("conditions %v", c) },
			Refused:           func(pod *corev1.Pod, message string) { n.note("refused %s: %s", pod.Name, message) },
		},
	}
}

func newManager(tb testing.TB, cfg eviction.Config) *eviction.Manager {
	tb.Helper()
	m, err := eviction.New(cfg)
	require.NoError(tb, err)
	return m
}
