package podrunner_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// slowVolumes blocks Unmount until the gate opens.
type slowVolumes struct {
	fakeVolumes
	gate chan struct{}
}

func (v *slowVolumes) Unmount(_ context.Context, uid types.UID) error {
	v.add("unmount %s", uid)
	<-v.gate
	v.add("unmounted %s", uid)
	return nil
}

// TestRemovePod_OneCleanupAtATime runs the worker's last sync and a removal of the same pod
// concurrently, during the removal of another pod.
func TestRemovePod_OneCleanupAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		volumes := &slowVolumes{gate: make(chan struct{})}
		s := newSupplied(t, func(c *podrunner.Config) { c.Volumes, c.PodCgroups = volumes, nil })
		pod, other := podOf(nil, "app"), &podcache.Status{UID: "other"}
		require.NoError(t, s.sync(pod))
		require.NoError(t, s.terminate(pod, time.Second))
		volumes.take()

		stopped := s.look(pod.UID)
		req := podworker.SyncRequest{Pod: pod, Status: stopped}
		impatient, cancel := context.WithCancel(t.Context())
		impatientErrs, errs := make(chan error, 2), make(chan error, 3)
		var all sync.WaitGroup
		all.Go(func() { errs <- s.runner.SyncTerminatedPod(t.Context(), req) })
		synctest.Wait()
		all.Go(func() { impatientErrs <- s.runner.RemovePod(impatient, stopped) })
		all.Go(func() { impatientErrs <- s.runner.SyncTerminatedPod(impatient, req) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		all.Go(func() { errs <- s.runner.RemovePod(t.Context(), stopped) })
		all.Go(func() { errs <- s.runner.RemovePod(t.Context(), other) })
		synctest.Wait()
		require.Equal(t, []string{"unmount uid", "unmount other"}, volumes.take())
		for range 2 {
			require.ErrorIs(t, <-impatientErrs, context.Canceled)
		}

		close(volumes.gate)
		all.Wait()
		for range 3 {
			require.NoError(t, <-errs)
		}
		require.ElementsMatch(t, []string{"unmounted uid", "unmounted other"}, volumes.take(), "RemovePod must not release again what SyncTerminatedPod has released")
		require.Zero(t, s.runner.PodsLocked())
	})
}

// TestRemovePod_ReleasesOnce checks that RemovePod does not release a pod again that
// SyncTerminatedPod has released, unless the pod was synced since.
func TestRemovePod_ReleasesOnce(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app"), "data")
	unmounts := func() (n int) {
		for _, call := range s.volumes.take() {
			if strings.HasPrefix(call, "unmount") {
				n++
			}
		}
		return n
	}
	terminated := func() error {
		return s.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID)})
	}
	for _, again := range []bool{false, true} {
		require.NoError(t, s.sync(pod))
		require.NoError(t, s.terminate(pod, time.Second))
		require.Zero(t, unmounts())
		require.NoError(t, terminated())
		require.Equal(t, 1, unmounts())
		if again { // a sync after the release, as for a static pod that was created again
			require.NoError(t, s.sync(pod))
			require.NoError(t, s.terminate(pod, time.Second))
		}
		require.NoError(t, s.runner.RemovePod(t.Context(), s.look(pod.UID)))
		require.Equal(t, map[bool]int{false: 0, true: 1}[again], unmounts())
	}
}

func TestSyncTerminatedPod_RefusesStaleStatus(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app"), "data")
	require.NoError(t, s.sync(pod))
	require.NoError(t, s.terminate(pod, time.Second))
	s.volumes.take()
	stale := *s.look(pod.UID)
	stale.Stale = true
	err := s.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: &stale})
	require.EqualError(t, err, "pod uid: the pod's status is stale")
	require.Empty(t, s.volumes.take())
}

// TestRemovePod_RuntimeRefusesRemoval checks that volumes and cgroup are removed when no
// container is running, even if the runtime never removes a container.
func TestRemovePod_RuntimeRefusesRemoval(t *testing.T) {
	t.Parallel()
	var unknown error
	s := newSupplied(t, func(c *podrunner.Config) {
		refresh := c.Refresh
		c.Refresh = func(ctx context.Context, uid types.UID) (*podcache.Status, error) {
			if unknown != nil {
				return nil, unknown
			}
			return refresh(ctx, uid)
		}
	})
	pod := mounting(podOf(nil, "app"), "data")
	require.NoError(t, s.sync(pod))
	require.NoError(t, s.terminate(pod, time.Second))
	s.volumes.take()
	s.cgroups.take()
	for method, object := range map[string]string{"RemoveContainer": "ns/pod/app", "RemovePodSandbox": "ns/pod"} {
		err := grpcstatus.Error(codes.FailedPrecondition, "there is a runc init")
		require.NoError(t, s.node.Fail(method, fakecri.Fault{Object: object, Err: err, Times: 2}))
	}
	remove := func() error { return s.runner.RemovePod(t.Context(), s.look(pod.UID)) }

	unknown = errors.New("it does not answer")
	err := remove()
	require.ErrorIs(t, err, unknown)
	require.ErrorContains(t, err, "there is a runc init")
	require.Empty(t, append(s.volumes.take(), s.cgroups.take()...), "the pod may be running, so nothing may be released")

	unknown = nil
	err = remove()
	require.ErrorContains(t, err, "there is a runc init")
	require.Equal(t, []string{"unmount uid"}, s.volumes.take())
	require.Equal(t, []string{"remove uid"}, s.cgroups.take())
	require.Contains(t, s.files(), "uid/etc-hosts", "the files must be kept, because the container still exists")

	require.NoError(t, remove())
	require.Empty(t, s.files())
}

// TestRemovePod_ContainerRunsAgain checks the case that the caller's status is older than a
// running container.
func TestRemovePod_ContainerRunsAgain(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app"), "data")
	require.NoError(t, s.sync(pod))
	require.NoError(t, s.terminate(pod, time.Second))
	old := s.look(pod.UID)
	require.NoError(t, s.sync(pod))
	require.True(t, s.look(pod.UID).Running())
	s.volumes.take()
	s.cgroups.take()
	before := s.files()
	require.ErrorIs(t, s.runner.RemovePod(t.Context(), old), podrunner.ErrStillRunning)
	require.Empty(t, append(s.volumes.take(), s.cgroups.take()...))
	require.Equal(t, before, s.files())
}

func TestUserIDs_ReleasedAfterTheProcessesExit(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	_, err := s.ids.Acquire("uid")
	require.NoError(t, err)
	s.cgroups.busy = 1
	require.Error(t, s.runner.RemovePod(t.Context(), &podcache.Status{UID: "uid"}))
	_, has := s.ids.Lookup("uid")
	require.True(t, has, "processes may have these user IDs, so the range must be kept")
	require.NoError(t, s.runner.RemovePod(t.Context(), &podcache.Status{UID: "uid"}))
	_, has = s.ids.Lookup("uid")
	require.False(t, has)
}
