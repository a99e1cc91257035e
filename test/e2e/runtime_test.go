//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels and annotations of the kubelet's contract with the runtime. They are repeated
// here, not imported, so that a changed constant fails a test.
const (
	labelAgent         = "io.kubeparts.agent"
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
	annotationRestarts = "io.kubernetes.container.restartCount"
)

// callTimeout is the timeout of one call to the runtime.
const callTimeout = 20 * time.Second

// instance is one container in the runtime, with times in nanoseconds. The API's times have
// whole seconds.
type instance struct {
	ID, Sandbox, Name string
	State             runtimeapi.ContainerState
	Restarts          string
	Started, Finished time.Time
	ExitCode          int32
}

func (i instance) String() string {
	return fmt.Sprintf("%s #%s %.12s %s %v–%v", i.Name, i.Restarts, i.ID, i.State,
		i.Started.Format(time.StampMilli), i.Finished.Format(time.StampMilli))
}

func (i instance) running() bool { return i.State == runtimeapi.ContainerState_CONTAINER_RUNNING }

// instances lists the containers with the given labels in the order of their starts. It omits
// a container that is removed during the listing. It fails the test if the runtime returns an
// error.
func (b *testbed) instances(t *testing.T, labels map[string]string) []instance {
	t.Helper()
	found, err := b.find(labels)
	require.NoError(t, err)
	return found
}

func (b *testbed) find(labels map[string]string) ([]instance, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	list, err := b.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, err
	}
	var found []instance
	for _, c := range list.GetContainers() {
		r, err := b.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil {
			continue
		}
		st := r.GetStatus()
		found = append(found, instance{
			ID: c.GetId(), Sandbox: c.GetPodSandboxId(), Name: st.GetMetadata().GetName(), State: st.GetState(),
			Restarts: st.GetAnnotations()[annotationRestarts], ExitCode: st.GetExitCode(),
			Started: time.Unix(0, st.GetStartedAt()), Finished: time.Unix(0, st.GetFinishedAt()),
		})
	}
	slices.SortFunc(found, func(a, b instance) int { return a.Started.Compare(b.Started) })
	return found, nil
}

// pid returns the process id of a running container's first process.
func (b *testbed) pid(t *testing.T, container string) int {
	t.Helper()
	r, err := b.runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container, Verbose: true})
	require.NoError(t, err)
	var info struct {
		Pid int `json:"pid"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.GetInfo()["info"]), &info))
	require.Greater(t, info.Pid, 1)
	return info.Pid
}

// netns returns the file of a sandbox's network namespace.
func (b *testbed) netns(t *testing.T, sandbox string) string {
	t.Helper()
	r, err := b.runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	require.NoError(t, err)
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string } `json:"namespaces"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.GetInfo()["info"]), &info))
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			require.FileExists(t, ns.Path)
			return ns.Path
		}
	}
	t.Fatalf("sandbox %s has no network namespace", sandbox)
	return ""
}

// sandboxes lists the ids of the sandboxes with the given labels.
func (b *testbed) sandboxes(labels map[string]string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	list, err := b.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range list.GetItems() {
		ids = append(ids, s.GetId())
	}
	return ids, nil
}

// removeSandboxes removes all sandboxes with the given labels concurrently.
func (b *testbed) removeSandboxes(labels map[string]string) error {
	ids, err := b.sandboxes(labels)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := b.removeSandbox(id); err != nil {
			return err
		}
	}
	return nil
}

func (b *testbed) removeSandbox(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := b.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err == nil {
		_, err = b.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	}
	if m := runningTask.FindStringSubmatch(fmt.Sprint(err)); m != nil {
		return errors.Join(err, b.deleteTask(m[1])) // the next attempt can remove it
	}
	return err
}

// ctrCommand returns a command of ctr, containerd's own client.
func (b *testbed) ctrCommand(args ...string) *exec.Cmd {
	return exec.Command(b.ctr, append([]string{"-a", strings.TrimPrefix(b.endpoint, "unix://"), "-n", "k8s.io"}, args...)...)
}

// runningTask matches the ID of a container whose task exists in containerd and not in its
// CRI plugin.
var runningTask = regexp.MustCompile(`cannot delete running task ([0-9a-f]{64})`)

// deleteTask kills the task of a container through containerd's own API. If a start is
// interrupted in a certain millisecond, a task is left that the CRI plugin does not know. The
// plugin then cannot remove the container.
func (b *testbed) deleteTask(id string) error {
	out, err := b.ctrCommand("tasks", "delete", "--force", id).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr tasks delete: %w: %s", err, out)
	}
	return nil
}

// forgotten reports whether a start has left a task that the CRI plugin does not know.
func forgotten(s *runtimeapi.ContainerStatus) bool {
	return strings.Contains(s.GetMessage(), "failed to get task pid")
}

// podLabels returns the labels that identify a pod's containers. The name is included because
// tests use the same UIDs, and names contain the node's name.
func podLabels(pod *corev1.Pod) map[string]string {
	return map[string]string{labelPodUID: string(pod.UID), labelPodName: pod.Name}
}

// alive reports whether a process is running. A zombie does not count: if process 1 of the
// machine does not reap, killed processes remain zombies.
func alive(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(strings.Trim(string(cmdline), "\x00")) > 0
}
