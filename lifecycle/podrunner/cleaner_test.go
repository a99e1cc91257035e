package podrunner_test

import (
	"context"
	"errors"
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

// TestRemovePod_OneCleanupAtATime runs the worker's last sync and a removal of
// the same pod concurrently, while another pod is removed.
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
		require.ElementsMatch(t, []string{"unmounted uid", "unmount uid", "unmounted uid", "unmounted other"}, volumes.take())
		require.Zero(t, s.runner.PodsLocked())
	})
}

// TestRemovePod_RuntimeRefusesRemoval: volumes and cgroup are removed when
// nothing runs, even if the runtime never removes a container.
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
	require.Empty(t, append(s.volumes.take(), s.cgroups.take()...), "the pod may run")

	unknown = nil
	err = remove()
	require.ErrorContains(t, err, "there is a runc init")
	require.Equal(t, []string{"unmount uid"}, s.volumes.take())
	require.Equal(t, []string{"remove uid"}, s.cgroups.take())
	require.Contains(t, s.files(), "uid/etc-hosts", "the container is there still")

	require.NoError(t, remove())
	require.Empty(t, s.files())
}

// TestRemovePod_ContainerRunsAgain: the caller's status is older than a running
// container.
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

func TestUserIDsAreReleasedAfterTheirProcesses(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	_, err := s.ids.Acquire("uid")
	require.NoError(t, err)
	s.cgroups.busy = 1
	require.Error(t, s.runner.RemovePod(t.Context(), &podcache.Status{UID: "uid"}))
	_, has := s.ids.Lookup("uid")
	require.True(t, has, "processes may have them")
	require.NoError(t, s.runner.RemovePod(t.Context(), &podcache.Status{UID: "uid"}))
	_, has = s.ids.Lookup("uid")
	require.False(t, has)
}
