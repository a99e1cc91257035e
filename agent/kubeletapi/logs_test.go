package kubeletapi_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/podcache"
)

// writeLogs writes a log for each of the first instances of a container. The only line of a
// log is the number of the instance.
func writeLogs(t *testing.T, p agent.Pod, container string, instances int) (root string) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, fmt.Sprintf("%s_%s_%s", p.Spec.Namespace, p.Spec.Name, p.Spec.UID), container)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for i := range instances {
		line := fmt.Sprintf("%s stdout F instance %d\n", at.Format(time.RFC3339Nano), i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.log", i)), []byte(line), 0o600))
	}
	return root
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func exited(id string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id}}
}

func waits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func TestLogs_AreThoseOfTheInstance(t *testing.T) {
	t.Parallel()
	observed := &podcache.Status{Containers: []*runtimeapi.ContainerStatus{
		instance("c", "three", 3, runtimeapi.ContainerState_CONTAINER_RUNNING),
		instance("c", "two", 2, runtimeapi.ContainerState_CONTAINER_EXITED),
	}}
	for name, c := range map[string]struct {
		status *corev1.ContainerStatus
		query  string
		code   int
		body   string
	}{
		"running":                       {&corev1.ContainerStatus{State: runs(), ContainerID: "x://three"}, "", 200, "instance 3\n"},
		"previous of running":           {&corev1.ContainerStatus{State: runs(), ContainerID: "x://three", LastTerminationState: exited("x://two")}, "?previous", 200, "instance 2\n"},
		"ended":                         {&corev1.ContainerStatus{State: exited("x://two")}, "", 200, "instance 2\n"},
		"ended, by the status":          {&corev1.ContainerStatus{State: exited(""), ContainerID: "x://two"}, "", 200, "instance 2\n"},
		"waits for a restart":           {&corev1.ContainerStatus{State: waits("CrashLoopBackOff"), LastTerminationState: exited("x://two")}, "", 200, "instance 2\n"},
		"removed":                       {&corev1.ContainerStatus{State: exited("x://gone"), RestartCount: 1}, "", 200, "instance 1\n"},
		"previous was removed":          {&corev1.ContainerStatus{State: runs(), RestartCount: 1, LastTerminationState: exited("x://gone")}, "?previous=true", 200, "instance 0\n"},
		"previous of ended was removed": {&corev1.ContainerStatus{State: exited("x://gone"), RestartCount: 1, LastTerminationState: exited("x://older")}, "?previous", 200, "instance 0\n"},
		"previous is the last, removed": {&corev1.ContainerStatus{State: waits("CrashLoopBackOff"), RestartCount: 1, LastTerminationState: exited("x://gone")}, "?previous", 200, "instance 1\n"},
		"removed, without a log":        {&corev1.ContainerStatus{State: exited("x://gone"), RestartCount: 9}, "", 404, "container \"c\" in pod \"p\": the log does not exist: it was not written yet, or it was deleted\n"},
		"no previous":                   {&corev1.ContainerStatus{State: runs()}, "?previous", 400, "previous terminated container \"c\" in pod \"p\" not found\n"},
		"waits for its image":           {&corev1.ContainerStatus{State: waits("ErrImagePull")}, "", 400, "container \"c\" in pod \"p\" is waiting to start: ErrImagePull\n"},
		"waits without a reason":        {&corev1.ContainerStatus{State: waits("")}, "", 400, "container \"c\" in pod \"p\" is waiting to start - no logs yet\n"},
		"has no status":                 {nil, "", 400, "container \"c\" in pod \"p\" is waiting to start - no logs yet\n"},
		"queries that are ignored":      {&corev1.ContainerStatus{State: exited("x://two")}, "?tailLines=all&stream=All&timestamps=false&sinceTime=2026-01-02T03:04:05Z", 200, "instance 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := podOf("p", agent.Admitted, "c")
			p.Runtime = observed
			if c.status != nil {
				c.status.Name = "c"
				p.Spec.Status.ContainerStatuses = []corev1.ContainerStatus{*c.status}
			}
			code, body := ask(t, kubeletapi.Config{Agent: &fake{pods: []agent.Pod{p}}, PodLogs: writeLogs(t, p, "c", 4)}, "/containerLogs/ns/p/c"+c.query)
			require.Equal(t, c.code, code, body)
			require.Equal(t, c.body, body)
		})
	}
}

func TestLogs_NamesSelectAPodAndAContainer(t *testing.T) {
	t.Parallel()
	p := podOf("p-node1", agent.Admitted, "c", "d")
	p.Spec.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: exited("")}}
	cfg := kubeletapi.Config{
		Agent: &fake{node: nodeNamed("node1", corev1.ConditionTrue), pods: []agent.Pod{p}}, PodLogs: writeLogs(t, p, "c", 1),
	}
	for path, want := range map[string]string{
		"/containerLogs/ns/p-node1/c":        "instance 0\n",
		"/containerLogs/ns/p/c":              "instance 0\n",
		"/containerLogs/ns/p/e":              "container \"e\" not found in pod \"p\", its containers are: c, d\n",
		"/containerLogs/ns/p/..%2Fc":         "container \"../c\" not found in pod \"p\", its containers are: c, d\n",
		"/containerLogs/ns/q/c":              "pod \"q\" not found in namespace \"ns\"\n",
		"/containerLogs/other/p/c":           "pod \"p\" not found in namespace \"other\"\n",
		"/containerLogs/ns_p-node1%2F../p/c": "pod \"p\" not found in namespace \"ns_p-node1/..\"\n",
	} {
		_, body := ask(t, cfg, path)
		require.Equal(t, want, body, path)
	}
	code, _ := ask(t, kubeletapi.Config{Agent: cfg.Agent}, "/containerLogs/ns/p/c")
	require.Equal(t, http.StatusNotFound, code, "logs require Config.PodLogs")
}

// changing is a fake whose only pod changes.
type changing struct {
	fake
	mu    sync.Mutex
	pod   agent.Pod
	known bool
}

func (c *changing) Pods() []agent.Pod {
	p, _ := c.Pod("")
	return []agent.Pod{p}
}

func (c *changing) Pod(types.UID) (agent.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pod, c.known
}

func TestLogs_AreFollowedUntilThePodEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*changing){
		"ended":   func(c *changing) { c.pod.State = agent.Ended },
		"refused": func(c *changing) { c.pod.State = agent.Refused },
		"removed": func(c *changing) { c.pod.State = agent.Removed },
		"gone":    func(c *changing) { c.pod.State = agent.Gone },
		"unknown": func(c *changing) { c.known = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &changing{pod: podOf("p", agent.Ending, "c"), known: true}
			c.pod.Spec.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: runs()}}
			url, _ := run(t, kubeletapi.Config{Agent: c, PodLogs: writeLogs(t, c.pod, "c", 1)})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/containerLogs/ns/p/c?follow", nil)
			require.NoError(t, err)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer answer.Body.Close()
			first := make([]byte, len("instance 0\n"))
			_, err = io.ReadFull(answer.Body, first)
			require.NoError(t, err)
			require.Equal(t, "instance 0\n", string(first))
			c.mu.Lock()
			end(c)
			c.mu.Unlock()
			rest, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Empty(t, rest)
		})
	}
}
