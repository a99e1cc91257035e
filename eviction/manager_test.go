package eviction_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle"
)

//go:generate go run go.uber.org/mock/mockgen@v0.6.0 -typed -package eviction_test -destination mock_test.go github.com/kubeparts/kubeparts/eviction AnnotatedEventRecorder

var _ lifecycle.AdmitHandler = (*eviction.Manager)(nil)

// step evaluates once after d.
func (n *node) step(m *eviction.Manager, d time.Duration) eviction.Decision {
	n.t.Helper()
	n.clock.Step(d)
	got, err := m.Evaluate(n.t.Context())
	require.NoError(n.t, err)
	return got
}

func TestConfig_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := eviction.New(eviction.Config{
		Mode: "later", MinInterval: time.Minute, MaxInterval: time.Second, KillRetry: -1,
		Policy: eviction.Policy{
			Thresholds: []eviction.Threshold{
				hard("x", 1), hard(eviction.MemoryAvailable, 0), soft(eviction.MemoryAvailable, 1, -1),
				hard(eviction.MemoryAvailable, 1), hard(eviction.MemoryAvailable, 1),
			},
			StatsGrace: -1,
		},
	})
	for _, want := range []string{
		"eviction: invalid config", "field Stats is required", "field Pods is required", `field Mode: unknown mode "later"`,
		"field MinInterval: 1m0s is longer than MaxInterval, 1s", "field KillRetry: -1ns is negative",
		`Thresholds[0].Signal: unknown signal "x"`, "Thresholds[1].Value: 0 is not positive", "Thresholds[2]: ", "Thresholds[4]: memory.available<1 (hard) is set twice",
		"field StatsGrace: -1 is negative",
	} {
		require.ErrorContains(t, err, want)
	}
	n := newNode(t)
	cfg := n.config()
	cfg.Killer = nil
	require.ErrorContains(t, cfg.Validate(), "field Killer is required")
	cfg.Mode = eviction.DryRun
	require.NoError(t, cfg.Validate())
}

func TestManager_EvictedPodHasTheKubeletsStatusAndEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.instant = true
	n.saw(eviction.MemoryAvailable, 1500*mi, 10*gi)
	pod := newPod("hog", asks(corev1.ResourceMemory, "100Mi"))
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "small"})
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	stats := memoryStats(pod, 600*mi)
	stats.Containers = append(stats.Containers, eviction.ContainerStats{Name: "small"}, eviction.ContainerStats{Name: "debug", Memory: used(gi)})
	n.add(pod, stats)
	cfg := n.config(hard(eviction.MemoryAvailable, 2*gi))
	var evicted eviction.Eviction
	cfg.Observer.Evicting = func(_ *corev1.Pod, e eviction.Eviction) { evicted = e }
	m := newManager(t, cfg)
	n.step(m, 0)
	m.Wait()
	require.Equal(t, n.active(), n.podsAsked)
	message := "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1500Mi. " +
		"Container main was using 600Mi, request is 100Mi, has larger consumption of memory. "
	require.Contains(t, n.take(), "event pod hog Warning Evicted: "+message)
	require.Equal(t, map[string]string{
		eviction.OffendingContainersKey: "main", eviction.OffendingContainersUsageKey: "600Mi", eviction.StarvedResourceKey: "memory",
	}, evicted.Annotations)

	then := metav1.NewTime(epoch().Add(-time.Hour))
	for _, old := range [][]corev1.PodCondition{
		nil,
		{{Type: corev1.PodReady}, {Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, LastTransitionTime: then}},
	} {
		status := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: old}
		evicted.Apply(&status)
		require.Equal(t, corev1.PodFailed, status.Phase)
		require.Equal(t, "Evicted", status.Reason)
		require.Equal(t, message, status.Message)
		require.Equal(t, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", Message: message,
			ObservedGeneration: 7, LastTransitionTime: metav1.NewTime(epoch()),
		}, status.Conditions[len(status.Conditions)-1])
	}
	status := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: then}}}
	evicted.Apply(&status)
	require.Equal(t, then, status.Conditions[0].LastTransitionTime)
}

// messageOf returns the message and annotations of an eviction.
func messageOf(t *testing.T, th eviction.Threshold, o eviction.Observation, n *node) (string, map[string]string) {
	t.Helper()
	n.instant = true
	n.obs[o.Signal] = o
	var got eviction.Eviction
	cfg := n.config(th)
	cfg.Observer.Evicting = func(_ *corev1.Pod, e eviction.Eviction) { got = e }
	m := newManager(t, cfg)
	n.step(m, 0)
	n.step(m, 2*time.Minute) // longer than StatsGrace, for pods without stats
	m.Wait()
	require.True(t, got.Disruption)
	return got.Message, got.Annotations
}

func TestMessages(t *testing.T) {
	t.Parallel()
	disk := corev1.ResourceEphemeralStorage
	for _, tt := range []struct {
		name  string
		th    eviction.Threshold
		o     eviction.Observation
		pod   *corev1.Pod
		stats func(*corev1.Pod) []eviction.PodStats
		want  string
	}{
		{
			"without stats", hard(eviction.MemoryAvailable, gi), memoryIs(mi), newPod("a"), func(*corev1.Pod) []eviction.PodStats { return nil },
			"The node was low on resource: memory. Threshold quantity: 1Gi, available: 1Mi. ",
		},
		{
			"processes", hard(eviction.PIDAvailable, 1200), saw(eviction.PIDAvailable, 1000, 32768), newPod("a"),
			func(p *corev1.Pod) []eviction.PodStats {
				return []eviction.PodStats{{UID: p.UID, Processes: used(9)}}
			}, "The node was low on resource: pids. Threshold quantity: 1200, available: 1k. ",
		},
		{
			"inodes, by percentage",
			eviction.Threshold{Signal: eviction.NodeFSInodesFree, Value: eviction.Value{Fraction: 0.5}},
			saw(eviction.NodeFSInodesFree, 100, 4096), newPod("a", asks(disk, "1")),
			func(p *corev1.Pod) []eviction.PodStats { return []eviction.PodStats{diskStats(p, 9, 9, 9)} },
			"The node was low on resource: inodes. Threshold quantity: 2Ki, available: 100. ",
		},
		{
			"disk", hard(eviction.NodeFSAvailable, gi), saw(eviction.NodeFSAvailable, 100*mi, 10*gi), newPod("a", asks(disk, "1Mi")),
			func(p *corev1.Pod) []eviction.PodStats { return []eviction.PodStats{diskStats(p, mi, mi, 0)} },
			"The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 100Mi. " +
				"Container main was using 2Mi, request is 1Mi, has larger consumption of ephemeral-storage. ",
		},
		{
			"a disk with incomplete stats names no container", hard(eviction.NodeFSAvailable, gi), saw(eviction.NodeFSAvailable, 100*mi, 10*gi), newPod("a"),
			func(p *corev1.Pod) []eviction.PodStats {
				return []eviction.PodStats{{UID: p.UID, Containers: []eviction.ContainerStats{{Name: "main", Rootfs: eviction.DiskUsage{Bytes: used(gi)}}}}}
			}, "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 100Mi. ",
		},
		{
			"no request", hard(eviction.MemoryAvailable, gi), memoryIs(0), newPod("a"),
			func(p *corev1.Pod) []eviction.PodStats { return []eviction.PodStats{memoryStats(p, mi)} },
			"The node was low on resource: memory. Threshold quantity: 1Gi, available: 0. " +
				"Container main was using 1Mi, request is 0, has larger consumption of memory. ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.pods, n.stats = []*corev1.Pod{tt.pod}, tt.stats(tt.pod)
			got, _ := messageOf(t, tt.th, tt.o, n)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestMessages_PodLevelRequest(t *testing.T) {
	t.Parallel()
	pod := newPod("a")
	pod.Spec.Resources = &corev1.ResourceRequirements{}
	set(&pod.Spec.Resources.Requests, corev1.ResourceMemory, "1Mi")
	pod.Spec.InitContainers = []corev1.Container{{Name: "sidecar"}}
	stats := memoryStats(pod, 3*mi)
	stats.Containers = []eviction.ContainerStats{{Name: "sidecar", Memory: used(2 * mi)}}
	n := newNode(t)
	n.add(pod, stats)
	message, annotations := messageOf(t, hard(eviction.MemoryAvailable, gi), memoryIs(0), n)
	require.Equal(t, "The node was low on resource: memory. Threshold quantity: 1Gi, available: 0. "+
		"Pod a was using 3Mi, request is 1Mi, has larger consumption of memory. "+
		"Container sidecar was using 2Mi, request is 0, has larger consumption of memory. ", message)
	require.Equal(t, "a", annotations[eviction.OffendingPodKey])
	require.Equal(t, "3Mi", annotations[eviction.OffendingPodUsageKey])
}

// Three pods, one for each kind of limit, are evicted in one evaluation, and no others.
func TestLimits_AllPodsAboveTheirLimitsAreEvictedAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	disk := corev1.ResourceEphemeralStorage
	a, b, c := newPod("a", emptyDir("data", "1Mi", "")), newPod("b", limited(disk, "1Mi"), emptyDir("data", "", "")), newPod("c", limited(disk, "1Mi"))
	c.Spec.Containers = append(c.Spec.Containers, corev1.Container{Name: "x"})
	n.add(a, diskStats(a, 0, 0, 2*mi))
	n.add(b, diskStats(b, 0, 0, 2*mi))
	n.add(c, diskStats(c, 0, 2*mi, 0))
	cfg := n.config()
	var signals []eviction.Signal
	cfg.Policy.IgnorePartialPodLimits = true
	cfg.Observer.Evicting = func(_ *corev1.Pod, e eviction.Eviction) {
		require.False(t, e.Disruption)
		require.Empty(t, e.Annotations)
		signals = append(signals, e.Signal)
	}
	m := newManager(t, cfg)
	n.step(m, 0)
	require.Equal(t, []string{"kill a 1s", "kill b 1s", "kill c 1s"}, n.waitCalls(3))
	require.Equal(t, []eviction.Signal{eviction.EmptyDirFSLimit, eviction.EphemeralPodFSLimit, eviction.EphemeralContainerFSLimit}, signals)
	require.True(t, new(n.step(m, 10*time.Second)).IsNoop(), "each pod must be evicted only once")
	for _, name := range []string{"a", "b", "c"} {
		n.end(name, nil)
	}
	m.Wait()
	status := corev1.PodStatus{}
	eviction.Eviction{Message: "m"}.Apply(&status)
	require.Empty(t, status.Conditions)
}

// In the kubelet, a failed kill counts as an eviction, and delays the next eviction by 30 s.
func TestManager_FailedKillEvictsTheNextPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	n.add(newPod("first", priority(-1)), memoryStats(newPod("first"), gi))
	n.add(newPod("second"), memoryStats(newPod("second"), gi))
	m := newManager(t, n.config(hard(eviction.MemoryAvailable, mi)))
	n.step(m, 0)
	require.Equal(t, []string{"kill first 1s"}, n.waitCalls(1))
	n.end("first", errors.New("no such runtime"))
	m.Wait()
	require.Contains(t, n.take(), "evicted first for memory.available: no such runtime")
	n.step(m, 100*time.Millisecond)
	require.Equal(t, []string{"kill second 1s"}, n.waitCalls(1))
	n.end("second", nil)
	m.Wait()
	n.remove("second")
	n.step(m, 9800*time.Millisecond)
	n.take()
	n.step(m, 100*time.Millisecond)
	require.Equal(t, []string{"kill first 1s"}, n.waitCalls(1), "then the first pod must be retried")
	require.NotContains(t, strings.Join(n.take(), "\n"), "event pod first", "the eviction must not be announced again")
	n.end("first", nil)
	m.Wait()
}

func TestManager_OverduePodStopsCounting(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	n.add(newPod("stuck", priority(-1)), memoryStats(newPod("stuck"), gi))
	n.add(newPod("next"), memoryStats(newPod("next"), gi))
	m := newManager(t, n.config(hard(eviction.MemoryAvailable, mi)))
	n.step(m, 0)
	n.waitCalls(1)
	require.Empty(t, n.step(m, 10*time.Second-1).Victims)
	require.Equal(t, []string{"next"}, victims(n.step(m, 1)))
	n.step(m, time.Second)
	lines := strings.Join(n.take(), "\n")
	require.Equal(t, 1, strings.Count(lines, "overdue stuck"))
	require.Contains(t, lines, "event pod stuck Warning ExceededGracePeriod: Container runtime did not kill the pod within specified grace period.")
	n.waitCalls(1)
	n.end("stuck", nil)
	n.end("next", nil)
	m.Wait()
}

func TestEscalation_CallsTheKillerAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.add(newPod("slow", grace(600)), memoryStats(newPod("slow"), 2*gi))
	cfg := n.config(soft(eviction.MemoryAvailable, 2*gi, time.Second), hard(eviction.MemoryAvailable, gi))
	cfg.Policy.MaxPodGracePeriodSeconds = -1
	m := newManager(t, cfg)
	n.saw(eviction.MemoryAvailable, gi+1, 10*gi)
	n.step(m, 0)
	n.step(m, time.Second)
	require.Equal(t, []string{"kill slow 600s"}, n.waitCalls(1))
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	d := n.step(m, time.Second)
	require.Equal(t, []string{"kill slow 1s"}, n.waitCalls(1))
	require.Contains(t, d.String(), "shorten the grace period of default/slow")
	require.Empty(t, n.step(m, time.Second).Escalate)
	n.end("slow", nil)
	m.Wait()
	require.Equal(t, 1, strings.Count(strings.Join(n.take(), "\n"), "evicted slow"))
}

func TestManager_ReclaimedDiskSavesPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.saw(eviction.NodeFSAvailable, 0, 10*gi)
	n.add(newPod("a"), diskStats(newPod("a"), gi, 0, 0))
	cfg := n.config(hard(eviction.NodeFSAvailable, gi))
	cfg.ImageGC, cfg.ContainerGC = n, n
	m := newManager(t, cfg)
	n.step(m, 0)
	require.Equal(t, []string{"containers"}, n.waitCalls(1))
	require.Equal(t, "disk is being reclaimed", n.step(m, time.Second).Thresholds[0].Why)
	n.gc <- errors.New("some stay")
	m.Wait()
	n.step(m, time.Second)
	require.Equal(t, []string{"images nodefs.available 1073741824"}, n.waitCalls(1))
	n.saw(eviction.NodeFSAvailable, gi, 10*gi)
	n.gc <- nil
	m.Wait()
	require.True(t, new(n.step(m, time.Second)).IsNoop())
	require.Equal(t, []string{
		"conditions [DiskPressure]", "event node Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage",
		"reclaimed delete unused containers: some stay", "reclaimed delete unused images: <nil>",
	}, n.take())
	require.True(t, m.IsUnderDiskPressure())
	require.False(t, m.IsUnderMemoryPressure() || m.IsUnderPIDPressure())
	n.step(m, time.Minute)
	n.saw(eviction.NodeFSAvailable, 0, 10*gi)
	n.instant = true
	require.Len(t, n.step(m, time.Minute).Reclaim, 1, "the reclaim must be retried later")
	m.Wait()
}

func TestManager_DiskCountsAsFreedUntilThePodIsCleanedUp(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.instant = true
	n.saw(eviction.NodeFSAvailable, 0, 10*gi)
	n.add(newPod("a", priority(-1)), diskStats(newPod("a"), gi, 0, 0))
	n.add(newPod("b"), diskStats(newPod("b"), gi, 0, 0))
	clean := false
	cfg := n.config(hard(eviction.NodeFSAvailable, gi))
	cfg.CleanedUp = func(uid types.UID) bool { return clean && uid == "uid-a" }
	m := newManager(t, cfg)
	require.Equal(t, []string{"a"}, victims(n.step(m, 0)))
	m.Wait()
	require.Empty(t, n.step(m, time.Second).Victims)
	clean = true
	require.Equal(t, []string{"b"}, victims(n.step(m, time.Second)))
	m.Wait()
	n.remove("a")
	n.remove("b")
	require.Len(t, n.step(m, 10*time.Second).Next.InFlight, 1)
	require.Empty(t, n.step(m, time.Minute).Next.InFlight)
}

func TestManager_StatsErrorsDoNotStopEvictions(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.instant = true
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	n.add(newPod("a"), memoryStats(newPod("a"), gi))
	n.nodeErr, n.podsErr = errors.New("no statfs"), errors.New("one cgroup is gone")
	m := newManager(t, n.config(hard(eviction.MemoryAvailable, gi)))
	d, err := m.Evaluate(t.Context())
	require.EqualError(t, err, "measure the node: no statfs\nmeasure pods: one cgroup is gone")
	require.Equal(t, []string{"a"}, victims(d))
	m.Wait()
}

func TestMode_ObserveOnlyAndDryRunDoNothing(t *testing.T) {
	t.Parallel()
	for mode, pressed := range map[eviction.Mode]bool{eviction.ObserveOnly: true, eviction.DryRun: false} {
		n := newNode(t)
		n.saw(eviction.NodeFSAvailable, 0, 10*gi)
		n.add(newPod("a"), diskStats(newPod("a"), gi, 0, 0))
		cfg := n.config(hard(eviction.NodeFSAvailable, gi))
		cfg.Mode, cfg.Killer, cfg.ImageGC, cfg.ContainerGC = mode, nil, n, n
		m := newManager(t, cfg)
		require.Len(t, n.step(m, 0).Reclaim, 1)
		require.Len(t, n.step(m, time.Second).Reclaim, 1)
		require.Equal(t, []string{"a"}, victims(n.step(m, time.Second)), "the decision after a reclaim that freed nothing")
		m.Wait()
		require.Empty(t, n.calls)
		require.NotContains(t, strings.Join(n.take(), "\n"), "event")
		require.Equal(t, pressed, m.IsUnderDiskPressure())
		require.Equal(t, !pressed, m.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: newPod("new")}).Admit)
	}
}

func TestEvents_AnnotationsAndPeriod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.instant = true
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	cfg := n.config(hard(eviction.MemoryAvailable, gi))
	events := NewMockAnnotatedEventRecorder(gomock.NewController(t))
	var annotations map[string]string
	events.EXPECT().AnnotatedEventf(gomock.Any(), gomock.Any(), corev1.EventTypeWarning, "Evicted", "%s", gomock.Any()).Times(20).
		Do(func(_ runtime.Object, got map[string]string, _, _, _ string, _ ...any) { annotations = got })
	cfg.AnnotatedEvents = events
	m := newManager(t, cfg)
	for i := range 20 {
		pod := newPod(fmt.Sprintf("p%d", i))
		n.add(pod, memoryStats(pod, gi))
		n.step(m, time.Second)
		m.Wait()
	}
	require.Equal(t, "memory", annotations[eviction.StarvedResourceKey])
	require.Equal(t, 2, strings.Count(strings.Join(n.take(), "\n"), "EvictionThresholdMet"))
}

func TestEvaluate_GrowthOfATerminatingPodCounts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.saw(eviction.MemoryAvailable, 900*mi, 10*gi)
	n.add(newPod("hog"), memoryStats(newPod("hog"), 500*mi))
	n.add(newPod("calm"), memoryStats(newPod("calm"), 1*mi))
	m := newManager(t, n.config(hard(eviction.MemoryAvailable, 1*gi)))
	require.Equal(t, []string{"hog"}, victims(n.step(m, 0)))
	require.Equal(t, []string{"kill hog 1s"}, n.waitCalls(1))

	// The pod allocates two more GiB in its last second.
	n.saw(eviction.MemoryAvailable, 0, 10*gi) // more is missing than the pod used
	n.mu.Lock()
	n.stats[0] = memoryStats(n.pods[0], 3*gi)
	n.mu.Unlock()
	require.Empty(t, n.step(m, time.Second).Victims)
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	n.mu.Lock()
	n.stats[0] = memoryStats(n.pods[0], 1*mi) // the freed memory is not available yet
	n.mu.Unlock()
	require.Empty(t, n.step(m, time.Second).Victims)
	n.end("hog", nil)
	m.Wait()
}

func TestEvaluate_RecordsThatNothingCanBeEvicted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	n.add(newPod("critical", static), memoryStats(newPod("critical"), gi))
	cfg := n.config(hard(eviction.MemoryAvailable, gi))
	var log strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	m := newManager(t, cfg)
	for range 20 {
		n.step(m, time.Second)
	}
	require.Equal(t, []string{
		"conditions [MemoryPressure]", "event node Warning EvictionThresholdMet: Attempting to reclaim memory",
		"event node Warning EvictionThresholdMet: Attempting to reclaim memory",
	}, n.take(), "retried every 10 s")
	require.Equal(t, 2, strings.Count(log.String(), `msg="no pod can be evicted, the node remains under pressure" threshold="memory.available<1Gi (hard)" available=0`))
}

func TestReserved(t *testing.T) {
	t.Parallel()
	capacity := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("12Gi")}
	soft := hard(eviction.MemoryAvailable, 500*mi)
	soft.GracePeriod = time.Minute
	quarter := eviction.Threshold{Signal: eviction.NodeFSAvailable, Value: eviction.Value{Fraction: 0.25}}
	got := eviction.Reserved(capacity, []eviction.Threshold{
		hard(eviction.MemoryAvailable, 200*mi), hard(eviction.MemoryAvailable, 100*mi), soft, quarter, hard(eviction.ImageFSAvailable, gi), hard(eviction.AllocatableMemoryAvailable, gi),
	})
	memory, storage := got[corev1.ResourceMemory], got[corev1.ResourceEphemeralStorage]
	require.Equal(t, []string{"100Mi", "3Gi"}, []string{memory.String(), storage.String()})
	require.Len(t, got, 2)
	require.Empty(t, eviction.Reserved(capacity, nil))
}
