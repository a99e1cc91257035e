//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// memoryLimit is the memory limit of the pods and containers in these tests.
const memoryLimit = 32 << 20

// hungryPod is a pod that a test created over CRI, in a cgroup like a kubelet's, and a
// watcher that records the OOM kills of this pod.
type hungryPod struct {
	*testing.T
	uid       types.UID
	cgroup    string // cgroup of the pod, as in the kernel's log
	mount     string // mount point of the memory controller
	container string

	mu    sync.Mutex
	kills []oomwatch.Kill
}

// newHungryPod starts a container with the command. The memory limit applies to the pod if
// ofPod is set, otherwise to the container.
func newHungryPod(t *testing.T, ofPod bool, command ...string) *hungryPod {
	t.Helper()
	p := &hungryPod{T: t, uid: types.UID(fmt.Sprintf("8dd2e6c1-40d5-4b02-9a8f-%012x", time.Now().UnixNano()&(1<<48-1))), mount: "/sys/fs/cgroup/memory"}
	limitFile := "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		p.mount, limitFile = "/sys/fs/cgroup", "memory.max"
	}
	p.cgroup = "/kpbed/pod" + string(p.uid)
	p.watch()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "hungry-" + string(p.uid), Namespace: "default", Uid: string(p.uid)},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{CgroupParent: p.cgroup},
	}
	sandbox, err := bed.runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_, err := bed.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.GetPodSandboxId()})
		require.NoError(t, err)
		_, err = bed.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetPodSandboxId()})
		require.NoError(t, err)
	})
	resources := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memoryLimit}
	if ofPod {
		resources.MemoryLimitInBytes = 0
		require.NoError(t, os.WriteFile(filepath.Join(p.mount, p.cgroup, limitFile), fmt.Append(nil, memoryLimit), 0))
	}
	container, err := bed.runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "hungry"},
			Image:    &runtimeapi.ImageSpec{Image: imageServer},
			Args:     command,
			Linux:    &runtimeapi.LinuxContainerConfig{Resources: resources},
		},
	})
	require.NoError(t, err)
	p.container = container.GetContainerId()
	_, err = bed.runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: p.container})
	require.NoError(t, err)
	return p
}

// watch runs the watcher until the test ends.
func (p *hungryPod) watch() {
	p.Helper()
	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{})
	require.NoError(p, err)
	counters, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: p.mount, Parent: "/kpbed"})
	require.NoError(p, err)
	watcher, err := oomwatch.New(oomwatch.Config{
		Sources: []oomwatch.Source{kmsg, counters},
		Handler: func(_ context.Context, kill oomwatch.Kill) {
			p.Logf("%s after it: %s", time.Since(kill.Time).Round(time.Millisecond), kill.String())
			if kill.PodUID == p.uid {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.kills = append(p.kills, kill)
			}
		},
	})
	require.NoError(p, err)
	ctx, cancel := context.WithCancel(p.Context())
	done := make(chan error, 1)
	go func() { done <- watcher.Run(ctx) }()
	p.Cleanup(func() {
		cancel()
		require.NoError(p, <-done)
	})
	waitFor(p.T, callTimeout, "both sources to see", func() (string, bool) {
		sources := watcher.Sources()
		return fmt.Sprint(sources), sources[0].Watching && sources[1].Watching
	})
}

// killed returns the only kill of the pod. It waits until no further kill can be reported.
func (p *hungryPod) killed() oomwatch.Kill {
	p.Helper()
	look := func() (string, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Sprint(p.kills), len(p.kills) == 1
	}
	waitFor(p.T, callTimeout, "a kill", look)
	stays(p.T, 6*time.Second, "one kill", look)
	kill := p.kills[0]
	require.Equal(p, p.uid, kill.PodUID)
	require.Equal(p, p.container, kill.ContainerID)
	require.Equal(p, oomwatch.Cgroup, kill.Kind)
	require.Equal(p, p.cgroup+"/"+p.container, kill.VictimCgroup)
	require.Equal(p, 1, kill.Kills)
	return kill
}

func (p *hungryPod) status() *runtimeapi.ContainerStatus {
	p.Helper()
	answer, err := bed.runtime.ContainerStatus(p.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: p.container})
	require.NoError(p, err)
	return answer.GetStatus()
}

func TestOOMKills_ContainerOverItsLimitIsReportedOnce(t *testing.T) {
	t.Parallel()
	p := newHungryPod(t, false, "hog")
	kill := p.killed()
	require.Equal(t, p.cgroup+"/"+p.container, kill.LimitCgroup)
	require.Equal(t, "testserver", kill.Process)
	status := p.status()
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, status.GetState())
	require.Equal(t, "OOMKilled", status.GetReason())
}

func TestOOMKills_KilledChildIsReportedWhileContainerRuns(t *testing.T) {
	t.Parallel()
	p := newHungryPod(t, false, "sleep", "600")
	answer, err := bed.runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: p.container, Cmd: []string{"/testserver", "hog"}, Timeout: 20,
	})
	require.NoError(t, err)
	require.EqualValues(t, 137, answer.GetExitCode())
	p.killed()
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, p.status().GetState())
}

func TestOOMKills_PodLimitIsReportedWithContainer(t *testing.T) {
	t.Parallel()
	p := newHungryPod(t, true, "hog")
	require.Equal(t, p.cgroup, p.killed().LimitCgroup)
}
