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

// Labels and annotations as they are in the contract. They are written out here,
// not imported: a changed constant shall fail a test.
const (
	labelAgent         = "io.kubeparts.agent"
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
	annotationRestarts = "io.kubernetes.container.restartCount"
)

// callTimeout bounds one call to the runtime, which is quick or broken.
const callTimeout = 20 * time.Second

// instance is one container as the runtime has it, with times to the nanosecond,
// of which the API's have seconds only.
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

// instances lists the containers with the given labels in the order in which they
// were started; one that is removed during the listing is left out. It fails if
// the runtime does not answer.
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

// netns returns the file that holds a sandbox's network namespace.
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

// removeSandboxes takes all sandboxes with the given labels away at once.
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
		return errors.Join(err, b.deleteTask(m[1])) // so that it can be removed next time
	}
	return err
}

// ctrCommand asks containerd itself.
func (b *testbed) ctrCommand(args ...string) *exec.Cmd {
	return exec.Command(b.ctr, append([]string{"-a", strings.TrimPrefix(b.endpoint, "unix://"), "-n", "k8s.io"}, args...)...)
}

// runningTask finds the container whose task containerd knows of, and its CRI does not.
var runningTask = regexp.MustCompile(`cannot delete running task ([0-9a-f]{64})`)

// deleteTask ends what runs of a container by containerd's own interface. Of a start
// that is broken off in the wrong millisecond a task is left that CRI does not know of,
// so that it can't remove the container.
func (b *testbed) deleteTask(id string) error {
	out, err := b.ctrCommand("tasks", "delete", "--force", id).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr tasks delete: %w: %s", err, out)
	}
	return nil
}

// forgotten says whether a start left such a task.
func forgotten(s *runtimeapi.ContainerStatus) bool {
	return strings.Contains(s.GetMessage(), "failed to get task pid")
}

// podLabels are the labels by which a pod's containers are found. The name is one
// of them because tests use the same UIDs, and names are of one node.
func podLabels(pod *corev1.Pod) map[string]string {
	return map[string]string{labelPodUID: string(pod.UID), labelPodName: pod.Name}
}

// alive says whether a process runs. A zombie does not: what is killed on a
// machine whose process 1 does not reap stays one.
func alive(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(strings.Trim(string(cmdline), "\x00")) > 0
}
