//go:build e2e

package e2e

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestPoll_ReportsLastObservation(t *testing.T) {
	looks := 0
	seen, ok := poll(10*pollPeriod, func() (string, bool) { looks++; return strconv.Itoa(looks), false })
	require.False(t, ok)
	require.Equal(t, strconv.Itoa(looks), seen)
	require.Greater(t, looks, 1)

	seen, ok = poll(time.Hour, func() (string, bool) { return "there", true })
	require.True(t, ok)
	require.Equal(t, "there", seen)
}

func TestPoll_ChecksOnceWithZeroTimeout(t *testing.T) {
	looks := 0
	_, ok := poll(0, func() (string, bool) { looks++; return "", true })
	require.True(t, ok)
	require.Equal(t, 1, looks)
}

func TestLook_ReportsStateOfForeignPods(t *testing.T) {
	require.Len(t, bed.foreign, 2)
	for _, f := range bed.foreign {
		now, err := f.look(bed)
		require.NoError(t, err)
		require.Equal(t, f.before, now)
		require.Equal(t, "CONTAINER_RUNNING", now.State)
	}
}

func TestTraces_FindsObjectsOfRunningPod(t *testing.T) {
	pod := &corev1.Pod{}
	pod.UID, pod.Name = foreignUID, "of-a-kubelet"
	tr := bed.traces(t, pod) // returns an error if it finds nothing
	require.Len(t, tr.ids, 2)
	require.True(t, alive(bed.pid(t, tr.ids[1])))
	require.False(t, alive(1<<30))
}
