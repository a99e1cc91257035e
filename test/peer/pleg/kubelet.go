package pleg

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/metrics/testutil"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubeletpleg "k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

//go:linkname relistPod k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relistPod
func relistPod(g *kubeletpleg.GenericPLEG, uid types.UID)

//go:linkname getIfNewerThan k8s.io/kubernetes/pkg/kubelet/container.(*cache).getIfNewerThan
func getIfNewerThan(cache unsafe.Pointer, uid types.UID, t time.Time) unsafe.Pointer

// A switchboard is the runtime service of the kubelet's runtime manager. One runtime manager
// serves all scenarios.
type switchboard struct {
	cri.RuntimeService
	*node
}

func (s *switchboard) Version(ctx context.Context, v string) (*runtimeapi.VersionResponse, error) {
	return s.node.Version(ctx, v)
}

func (s *switchboard) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return s.node.ListPodSandbox(ctx, f)
}

func (s *switchboard) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return s.node.ListContainers(ctx, f)
}

func (s *switchboard) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.node.PodSandboxStatus(ctx, id, verbose)
}

func (s *switchboard) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return s.node.ContainerStatus(ctx, id, verbose)
}

// A kubelet is the part of the kubelet that all scenarios share.
type kubelet struct {
	board   *switchboard
	runtime kubecontainer.Runtime
}

// newKubelet creates the kubelet's runtime manager over a runtime that each scenario
// replaces.
func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{board: &switchboard{node: newNode(&World{})}}
	metrics.Register()
	runtime, _, err := kuberuntime.NewKubeGenericRuntimeManager(
		t.Context(), record.NewFakeRecorder(1), nil, nil, nil, t.TempDir(), t.TempDir(),
		&cadvisorapi.MachineInfo{}, nil, 110, nil, nil, nil,
		flowcontrol.NewBackOff(time.Second, time.Minute), false, nil, 0, 0,
		string(kubeletconfig.NeverVerify), nil, "", "", nil, false, metav1.Duration{},
		k.board, nil, cm.NewFakeContainerManager(), logs.NewStubContainerLogManager(), nil, false, "",
		func() corev1.ResourceList { return nil }, 0.9, "", nil, noop.NewTracerProvider(), nil, nil, nil,
	)
	require.NoError(t, err)
	k.runtime = runtime
	return k
}

// kubeletRun is the kubelet's side of one scenario.
type kubeletRun struct {
	w       *World
	began   time.Time
	node    *node
	cache   kubecontainer.Cache
	pleg    *kubeletpleg.GenericPLEG
	events  chan *kubeletpleg.PodLifecycleEvent
	waiters []*waiting
}

// waiting is a waiter of either side. It receives at most one status.
type waiting struct {
	Waiter
	receipt chan view
	result  string
}

// play plays a world with the kubelet's packages.
func (k *kubelet) play(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	w.model = newModel(w)
	synctest.Test(t, func(t *testing.T) {
		r := &kubeletRun{w: w, began: time.Now(), node: newNode(w), cache: kubecontainer.NewCache()}
		k.board.node = r.node
		metrics.RunningContainerCount.Reset()
		metrics.RunningPodCount.Set(0)
		r.events = make(chan *kubeletpleg.PodLifecycleEvent, w.Capacity)
		g := kubeletpleg.NewGenericPLEG(logr.Discard(), k.runtime, r.events,
			&kubeletpleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}, r.cache, clock.RealClock{})
		r.pleg, _ = g.(*kubeletpleg.GenericPLEG)
		for i := range w.Steps {
			all = append(all, r.step(t, i))
		}
		r.cache.UpdateTime(time.Now().Add(1000 * time.Hour)) // releases all waiters
	})
	return all
}

func (r *kubeletRun) step(t *testing.T, i int) judge.Facts {
	t.Helper()
	s, f := r.w.Steps[i], judge.Facts{}
	time.Sleep(time.Until(r.began.Add(s.At)))
	if _, err := r.pleg.Healthy(); err != nil {
		f["unhealthy"] = err.Error()
	}
	r.node.begin(s)
	for _, uid := range s.Reinspect {
		r.pleg.RequestReinspect(types.UID(uid))
	}
	for _, w := range s.Waiters {
		r.wait(w)
	}
	done, slow, before := make(chan struct{}), r.node.slowest() > 0, judge.Facts{}
	if slow {
		r.freshness(before, "meanwhile/", i)
	}
	go func() {
		defer close(done)
		switch {
		case s.Look.None:
		case s.Look.Pod != "":
			relistPod(r.pleg, types.UID(s.Look.Pod))
		default:
			r.pleg.Relist()
		}
	}()
	if slow {
		time.Sleep(time.Second)
		r.freshness(f, "meanwhile/", i)
		if sm := r.w.model.steps[i]; sm.slowForKubelet() {
			for uid, e := range sm.pods {
				if e.kubeletInspected { // the kubelet inspects pods in the order of a map; assume that this pod comes after the slow one
					f["meanwhile/pod "+uid+"/as new as"] = before["meanwhile/pod "+uid+"/as new as"]
				}
			}
		}
		f["told meanwhile"] = fmt.Sprint(r.w.model.steps[i].atOnce(), " inspected")
	}
	<-done
	r.node.reach(2)
	var events []event
	for len(r.events) > 0 {
		e := <-r.events
		id, _ := e.Data.(string)
		events = append(events, event{string(e.ID), string(e.Type), id})
	}
	addEvents(f, events)
	for _, uid := range uids() {
		r.view(uid).facts(f, uid)
	}
	r.freshness(f, "", i)
	r.gauges(t, f)
	maps.Copy(f, r.w.model.steps[i].report)
	return f
}

func (r *kubeletRun) wait(w Waiter) {
	waiter := &waiting{Waiter: w, receipt: make(chan view, 1)}
	r.waiters = append(r.waiters, waiter)
	go func() {
		waiter.receipt <- kubeletView(r.cache.GetNewerThan(types.UID(w.Pod), r.began.Add(w.For)))
	}()
	synctest.Wait()
	if waiter.add(judge.Facts{}, 0, r.view); waiter.result != "" {
		waiter.result += " at once"
	}
}

// freshness adds how new the cached statuses are, and the statuses that waiters received.
func (r *kubeletRun) freshness(f judge.Facts, prefix string, step int) {
	synctest.Wait()
	for _, uid := range uids() {
		f[prefix+"pod "+uid+"/as new as"] = freshness(r.w, step, func(at time.Duration) bool {
			// The kubelet requires a newer time, ours an equal or newer time: see package
			// podcache.
			least := r.began.Add(at - 1)
			return getIfNewerThan(reflect.ValueOf(r.cache).UnsafePointer(), types.UID(uid), least) != nil
		})
	}
	for i, w := range r.waiters {
		if prefix == "" {
			w.add(f, i, r.view)
		}
	}
}

// add adds the fact of a waiter.
func (w *waiting) add(f judge.Facts, i int, has func(string) view) {
	if w.result == "" {
		select {
		case got := <-w.receipt:
			w.result = received(w.Pod, got, has(w.Pod))
		default:
		}
	}
	f[fmt.Sprintf("pod %s/waiter %d", w.Pod, i)] = cmp.Or(w.result, "waits")
}

// freshness returns the newest step for whose time the status is new enough, as fresh reports.
func freshness(w *World, step int, fresh func(time.Duration) bool) string {
	for i := step; i >= 0; i-- {
		if fresh(w.Steps[i].At) {
			return fmt.Sprint("step at ", w.Steps[i].At)
		}
	}
	if fresh(-1000 * time.Hour) {
		return "the beginning"
	}
	return "nothing"
}

func (r *kubeletRun) view(uid string) view { return kubeletView(r.cache.Get(types.UID(uid))) }

func kubeletView(s *kubecontainer.PodStatus, err error) view {
	v := view{err: err, stale: err != nil}
	if s == nil {
		return v
	}
	v.uid, v.ips = string(s.ID), s.IPs
	v.name = strings.Trim(s.Namespace+"/"+s.Name, "/")
	for _, b := range s.SandboxStatuses {
		v.sandboxes = append(v.sandboxes, sandboxView{b.Id, sandboxText(b)})
		v.runs = v.runs || b.State == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	for _, c := range s.ContainerStatuses {
		o := Object{
			State: kubeletState(c.State), Created: c.CreatedAt.UnixNano(), Started: c.StartedAt.UnixNano(),
			Finished: c.FinishedAt.UnixNano(), Exit: int32(c.ExitCode), Reason: c.Reason, Message: c.Message,
		}
		if c.Resources != nil && c.Resources.MemoryLimit != nil {
			o.Memory = c.Resources.MemoryLimit.Value()
		}
		v.runs = v.runs || o.State == running || o.State == lost
		shown := containerView{id: c.ID.ID, name: c.Name, restarts: c.RestartCount, text: o.text()}
		for _, a := range s.ActiveContainerStatuses {
			shown.active = shown.active || a.ID == c.ID && len(s.SandboxStatuses) > 0 && s.SandboxStatuses[0].State == runtimeapi.PodSandboxState_SANDBOX_READY
		}
		v.containers = append(v.containers, shown)
	}
	return v
}

func kubeletState(s kubecontainer.State) int32 {
	switch s {
	case kubecontainer.ContainerStateCreated:
		return created
	case kubecontainer.ContainerStateRunning:
		return running
	case kubecontainer.ContainerStateExited:
		return exited
	default:
		return lost
	}
}

func sandboxText(b *runtimeapi.PodSandboxStatus) string {
	var more strings.Builder
	for _, ip := range b.GetNetwork().GetAdditionalIps() {
		more.WriteString(" " + ip.Ip)
	}
	return fmt.Sprintf("%v attempt %d created %d addresses %s%s", b.State, b.GetMetadata().GetAttempt(), b.CreatedAt, b.GetNetwork().GetIp(), more.String())
}

// gauges adds what the kubelet's metrics show.
func (r *kubeletRun) gauges(t *testing.T, f judge.Facts) {
	t.Helper()
	pods, err := testutil.GetGaugeMetricValue(metrics.RunningPodCount)
	require.NoError(t, err)
	f["running pods"] = fmt.Sprint(int(pods))
	counts := map[string]int{}
	for _, state := range []kubecontainer.State{
		kubecontainer.ContainerStateRunning, kubecontainer.ContainerStateExited,
		kubecontainer.ContainerStateCreated, kubecontainer.ContainerStateUnknown,
	} {
		n, err := testutil.GetGaugeMetricValue(metrics.RunningContainerCount.WithLabelValues(string(state)))
		require.NoError(t, err)
		counts[countName(kubeletState(state))] += int(n)
	}
	for name, n := range counts {
		f[name] = fmt.Sprint(n)
	}
}

// countName names the counter of a container's state.
func countName(state int32) string {
	switch state {
	case running:
		return "running containers"
	case exited:
		return "exited containers"
	default:
		return "other containers"
	}
}
