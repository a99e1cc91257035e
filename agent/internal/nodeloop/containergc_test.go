package nodeloop_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// containers returns how many containers the runtime has.
func (b *bed) containers(t *testing.T) int {
	t.Helper()
	all, err := b.node.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	return len(all)
}

func TestContainerGC_NothingBeforeReady(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*fakePods){
		"a source has not answered": func(p *fakePods) { p.notReady = errors.New("source file has not answered") },
		"PLEG is not healthy":       func(p *fakePods) { p.unhealthy = errors.New("the last relist is old") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				logs := t.TempDir()
				folder := filepath.Join(logs, "ns_gone_"+webUID)
				require.NoError(t, os.MkdirAll(folder, 0o755))
				b.cfg.PodLogs = logs
				b.pods.gone = nil
				hold(b.pods)
				sandbox, container := b.run(t, webUID)
				require.NoError(t, b.node.Kill(container, 1))
				require.NoError(t, b.node.StopPodSandbox(t.Context(), sandbox))
				b.start(t)
				wait(10 * time.Minute)
				require.Equal(t, 1, b.containers(t))
				require.DirExists(t, folder)

				b.pods.change(func(p *fakePods) {
					p.notReady, p.unhealthy = nil, nil
					p.gone = map[types.UID]bool{webUID: true}
				})
				wait(time.Minute)
				require.Zero(t, b.containers(t))
				wait(2 * time.Minute)
				require.NoDirExists(t, folder)
			})
		})
	}
}

// The remaining data of an evicted pod is removed, with its logs and their links. Another pod
// of the same name is not affected.
func TestContainerGC_LeftoversOfAnEvictedPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		logs, links := t.TempDir(), t.TempDir()
		b.cfg.PodLogs, b.cfg.ContainerLogs = logs, links
		sandbox, _ := b.run(t, webUID)
		b.run(t, "other")
		for _, pod := range []string{"ns_web_" + webUID, "ns_other_00000000-40d5-4b02-9a8f-4c3f2d7f9c11"} {
			require.NoError(t, os.MkdirAll(filepath.Join(logs, pod, "app"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(logs, pod, "app", "0.log"), []byte("line\n"), 0o644))
		}
		require.NoError(t, os.Symlink(filepath.Join(logs, "ns_web_"+webUID, "app", "0.log"), filepath.Join(links, "web_ns_app-1.log")))
		b.pods.gone[webUID] = true
		require.NoError(t, b.node.StopPodSandbox(t.Context(), sandbox))
		var collected atomic.Int64
		b.cfg.Observers.ContainerGC = containergc.Observer{Collected: func(containergc.Result, error) { collected.Add(1) }}
		b.start(t)
		wait(5 * time.Minute)
		require.Equal(t, 1, b.containers(t))
		require.NoDirExists(t, filepath.Join(logs, "ns_web_"+webUID))
		require.DirExists(t, filepath.Join(logs, "ns_other_00000000-40d5-4b02-9a8f-4c3f2d7f9c11"))
		left, err := os.ReadDir(links)
		require.NoError(t, err)
		require.Empty(t, left)
		require.Positive(t, collected.Load())
		require.Empty(t, b.check(t, "containers").Notes)
	})
}

func TestContainerGC_WithoutPodLogsNoLogIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		links := t.TempDir()
		b.cfg.ContainerLogs = links
		require.NoError(t, os.Symlink(filepath.Join(links, "nowhere"), filepath.Join(links, "web_ns_app-1.log")))
		b.start(t)
		wait(5 * time.Minute)
		left, err := os.ReadDir(links)
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.Equal(t, []string{"no folder for pod logs is configured: logs are neither rotated nor removed"}, b.check(t, "logs").Notes)
	})
}

func TestContainerGC_FailedPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		_, container := b.run(t, webUID)
		require.NoError(t, b.node.Kill(container, 1))
		b.pods.gone[webUID] = true
		require.NoError(t, b.node.Fail("RemoveContainer", fakecri.Fault{Err: errors.New("busy")}))
		b.start(t)
		require.Contains(t, b.check(t, "containers").Notes[0], "the last pass failed: ")
		require.Contains(t, b.events.all(), "Node node1: ContainerGCFailed")
		b.node.ClearFaults("RemoveContainer")
		wait(10 * time.Minute)
		require.Empty(t, b.check(t, "containers").Notes)
		require.Zero(t, b.containers(t))
	})
}

// The preStop hook of a container in an unknown state runs before the container is stopped.
func TestContainerGC_PreStopHooks(t *testing.T) {
	t.Parallel()
	hook, err := json.Marshal(corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye"}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		hook    string
		network bool // the sandbox has an address
		ip      string
	}{
		"of a pod":                       {string(hook), true, "10.88.0.2"},
		"of a pod in the node's network": {string(hook), false, "192.0.2.1"},
		"that cannot be read":            {"{", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				lost := b.runWithHook(t, c.hook, c.network)
				require.NoError(t, b.node.SetUnknown(lost))
				b.pods.gone[webUID] = true
				b.start(t)
				wait(5 * time.Minute)
				require.Zero(t, b.containers(t))
				if c.ip == "" {
					require.Empty(t, b.pods.hooks)
					require.Contains(t, b.events.all(), "Pod web: FailedPreStopHook")
					return
				}
				require.Len(t, b.pods.hooks, 1)
				h := b.pods.hooks[0]
				require.Equal(t, lifecycle.PreStop, h.Kind)
				require.Equal(t, "web", h.Pod.Name)
				require.Equal(t, "/bye", h.Container.Lifecycle.PreStop.HTTPGet.Path)
				require.Equal(t, lost, h.ContainerID)
				require.Equal(t, c.ip, h.PodIP)
				require.NotNil(t, h.Deadline)
			})
		})
	}
}

// runWithHook runs a container of pod web with a preStop hook.
func (b *bed) runWithHook(t *testing.T, hook string, network bool) string {
	t.Helper()
	labels := map[string]string{
		crilabels.PodUID: webUID, crilabels.PodName: "web", crilabels.PodNamespace: "ns", crilabels.ContainerName: "app",
	}
	mode := runtimeapi.NamespaceMode_POD
	if !network {
		mode = runtimeapi.NamespaceMode_NODE
	}
	conf := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: webUID}, Labels: labels,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: mode},
		}},
	}
	sandbox, err := b.node.RunPodSandbox(t.Context(), conf, "")
	require.NoError(t, err)
	container, err := b.node.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "demo/app:1"}, Labels: labels,
		Annotations: map[string]string{crilabels.PreStopHandler: hook, crilabels.PodTerminationGracePeriod: "30"},
	}, conf)
	require.NoError(t, err)
	require.NoError(t, b.node.StartContainer(t.Context(), container))
	return container
}

func TestLogs_OfRunningContainersAreRotated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		logs := t.TempDir()
		b.cfg.PodLogs = logs
		b.cfg.Logs = logrotate.Policy{MaxSizeBytes: 2000, MaxFiles: 3}
		var rotated []string
		b.cfg.Observers.Logs = logrotate.Observer{Rotated: func(r logrotate.Rotation) { rotated = append(rotated, filepath.Base(r.Path)) }}
		node, err := fakecri.New(fakecri.Config{
			Images: []fakecri.Image{{Name: "demo/app:1"}}, WriteLogs: true,
			Programs: map[string]fakecri.Program{"demo/app:1": {Log: []string{"a line that is written each second"}, LogInterval: time.Second}},
		})
		require.NoError(t, err)
		b.node, b.pods.node, b.cfg.Runtime = node, node, node
		conf := &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: webUID},
			Labels:       map[string]string{crilabels.PodUID: webUID},
			LogDirectory: filepath.Join(logs, "ns_web_"+webUID),
		}
		require.NoError(t, os.MkdirAll(filepath.Join(conf.GetLogDirectory(), "app"), 0o755))
		sandbox, err := node.RunPodSandbox(t.Context(), conf, "")
		require.NoError(t, err)
		container, err := node.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "demo/app:1"},
			Labels: conf.GetLabels(), LogPath: "app/0.log",
		}, conf)
		require.NoError(t, err)
		require.NoError(t, node.StartContainer(t.Context(), container))
		b.start(t)
		wait(5 * time.Minute)
		require.NotEmpty(t, rotated)
		require.Equal(t, "0.log", rotated[0])
		require.Empty(t, b.check(t, "logs").Notes)
	})
}
