package containergc_test

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
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// slow is a runtime with containers that have exited or are in an unknown state, each of a
// deleted pod. The calls in hang block until their context is done.
type slow struct {
	mu         sync.Mutex
	containers []*runtimeapi.Container
	hang       map[string]bool // keys: method, or method and ID
	calls      []string
}

func (s *slow) add(id string, state runtimeapi.ContainerState, annotations map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = append(s.containers, &runtimeapi.Container{
		Id: id, State: state, Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Annotations: annotations,
		Labels: map[string]string{crilabels.PodUID: "uid-" + id, crilabels.PodName: id, crilabels.PodNamespace: "ns"},
	})
}

func (s *slow) call(ctx context.Context, method, id string) error {
	s.mu.Lock()
	s.calls = append(s.calls, method+" "+id)
	hang := s.hang[method] || s.hang[method+" "+id]
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *slow) called(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.calls, call)
}

func (s *slow) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.containers), nil
}

func (s *slow) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return nil, nil
}

func (s *slow) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{FinishedAt: 1}}, s.call(ctx, "ContainerStatus", id)
}

func (s *slow) StopContainer(ctx context.Context, id string, grace int64) error {
	return s.call(ctx, fmt.Sprintf("StopContainer %d", grace), id)
}

func (s *slow) RemoveContainer(ctx context.Context, id string) error {
	return s.call(ctx, "RemoveContainer", id)
}

func (s *slow) StopPodSandbox(context.Context, string) error   { return nil }
func (s *slow) RemovePodSandbox(context.Context, string) error { return nil }

func (s *slow) ShouldPodContentBeRemoved(types.UID) bool { return true }
func (s *slow) ShouldPodRuntimeBeRemoved(types.UID) bool { return true }

func (s *slow) manager(t *testing.T, change ...func(*containergc.Config)) *containergc.Manager {
	t.Helper()
	cfg := containergc.Config{
		Runtime: s, Remover: s, Pods: s, SourcesReady: func() bool { return true }, Clock: clock.RealClock{},
	}
	for _, f := range change {
		f(&cfg)
	}
	m, err := containergc.New(cfg)
	require.NoError(t, err)
	return m
}

const (
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

func TestRun_ContainerThatIgnoresItsSignalDelaysNoOtherPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{hang: map[string]bool{"StopContainer 3600 stuck": true}}
		s.add("stuck", unknown, map[string]string{crilabels.PodTerminationGracePeriod: "3600"})
		m := s.manager(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		require.True(t, s.called("StopContainer 3600 stuck"))

		s.add("requested", exited, nil)
		m.RequestPod("uid-requested")
		synctest.Wait()
		require.True(t, s.called("RemoveContainer requested"), "a request must not wait for the hanging call")

		s.add("reclaimed", exited, nil)
		began := time.Now()
		require.NoError(t, m.DeleteAllUnusedContainers(t.Context()))
		require.True(t, s.called("RemoveContainer reclaimed"), "a reclaim must not wait for the hanging call")
		require.LessOrEqual(t, time.Since(began), 10*time.Second)

		s.add("next", exited, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, s.called("RemoveContainer next"), "the next pass must not wait for the hanging call")
		require.False(t, s.called("RemoveContainer stuck"))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestRun_HangingRemovalsDelayPassesOnlyByMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{hang: map[string]bool{"RemoveContainer": true}}
		for i := range 3000 {
			s.add(fmt.Sprint(i), exited, nil)
		}
		m := s.manager(t)
		began := time.Now()
		_, err := m.Collect(t.Context())
		require.ErrorContains(t, err, "the runtime does not respond")
		require.LessOrEqual(t, time.Since(began), 4*time.Minute)
		require.LessOrEqual(t, m.Failures(), 8)
	})
}

// If no objects remain for the next pass, the error only names the removals that timed out.
func TestCollect_HangingRemovalOfTheLastObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{hang: map[string]bool{"RemoveContainer": true}}
		s.add("last", exited, nil)
		m := s.manager(t, func(c *containergc.Config) { c.Workers = 1 })
		_, err := m.Collect(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "does not respond")
	})
}

func TestRun_HangingStatusesDelayPassesOnlyBySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{hang: map[string]bool{"ContainerStatus": true}}
		for i := range 3000 {
			s.add(fmt.Sprint(i), exited, nil)
		}
		m := s.manager(t, func(c *containergc.Config) { c.Policy.MinAge = time.Minute })
		began := time.Now()
		_, err := m.Collect(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(began))

		s.hang = map[string]bool{"ContainerStatus 0": true}
		res, err := m.Collect(t.Context())
		require.NoError(t, err, "the pass must succeed, because the status of 0 is requested again a minute later")
		require.Len(t, res.Removed, 2999)
		require.False(t, s.called("RemoveContainer 0"), "a container without a known exit time must count from now")
	})
}

func TestCollect_StopsAContainerInUnknownStateAsTheKubeletDoes(t *testing.T) {
	const killing = "Normal Killing Container is in unknown state, try killing it before removal"
	annotations := func(pairs ...string) map[string]string {
		all := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	for _, test := range []struct {
		name        string
		annotations map[string]string
		hook        time.Duration // duration of the preStop hook
		hookErr     error
		calls       []string
		events      recorder
	}{
		{"no annotations", nil, 0, nil, []string{"StopContainer 2 x", "RemoveContainer x"}, recorder{killing}},
		{"grace period", annotations(crilabels.PodTerminationGracePeriod, "30"), 0, nil, []string{"StopContainer 30 x", "RemoveContainer x"}, recorder{killing}},
		{
			"grace period of the deletion", annotations(crilabels.PodTerminationGracePeriod, "30", crilabels.PodDeletionGracePeriod, "10"), 0, nil,
			[]string{"StopContainer 10 x", "RemoveContainer x"},
			recorder{killing},
		},
		{
			"preStop hook", annotations(crilabels.PodTerminationGracePeriod, "30", crilabels.PreStopHandler, "{}"), 12500 * time.Millisecond, nil,
			[]string{"PreStop {}", "StopContainer 18 x", "RemoveContainer x"},
			recorder{killing},
		},
		{
			"preStop hook that fails", annotations(crilabels.PodTerminationGracePeriod, "30", crilabels.PreStopHandler, "{}"), 0, errors.New("no"),
			[]string{"PreStop {}", "StopContainer 30 x", "RemoveContainer x"},
			recorder{killing, "Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			"preStop hook that hangs", annotations(crilabels.PodTerminationGracePeriod, "30", crilabels.PreStopHandler, "{}"), time.Hour, nil,
			[]string{"PreStop {}", "StopContainer 2 x", "RemoveContainer x"},
			recorder{killing, "Warning FailedPreStopHook PreStopHook failed"},
		},
		{
			"a grace period without time for the hook", annotations(crilabels.PodDeletionGracePeriod, "0", crilabels.PreStopHandler, "{}"), 0, nil,
			[]string{"StopContainer 2 x", "RemoveContainer x"},
			recorder{killing},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, events := &slow{}, recorder{}
				s.add("x", unknown, test.annotations)
				m := s.manager(t, func(c *containergc.Config) {
					c.Recorder, c.Node = &events, &corev1.Node{}
					c.PreStop = func(ctx context.Context, c containergc.Container) error {
						s.calls = append(s.calls, "PreStop "+c.PreStop)
						select {
						case <-time.After(test.hook):
							return test.hookErr
						case <-ctx.Done():
							return ctx.Err()
						}
					}
				})
				_, err := m.Collect(t.Context())
				require.NoError(t, err)
				require.Equal(t, test.calls, s.calls)
				require.Equal(t, test.events, events)
			})
		})
	}
}
