package kubeletapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/podcache"
)

// podList returns the response to a request for a PodList.
func podList(t *testing.T, a kubeletapi.Agent, path string) corev1.PodList {
	t.Helper()
	w := answer(t, kubeletapi.Config{Agent: a}, path)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var list corev1.PodList
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
	require.Equal(t, "PodList v1", list.Kind+" "+list.APIVersion)
	require.NotNil(t, list.Items)
	return list
}

// running adds a ready sandbox and a running container to the runtime state of a pod.
func running(p agent.Pod, container string) agent.Pod {
	p.Runtime = observed(p, runtimeapi.PodSandboxState_SANDBOX_READY, instance(container, "id-"+container, 0, runtimeapi.ContainerState_CONTAINER_RUNNING))
	return p
}

func observed(p agent.Pod, sandbox runtimeapi.PodSandboxState, containers ...*runtimeapi.ContainerStatus) *podcache.Status {
	return &podcache.Status{
		UID: p.Spec.UID, Namespace: p.Spec.Namespace, Name: p.Spec.Name,
		Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "box", State: sandbox}}, Containers: containers,
	}
}

// instance returns an instance of a container.
func instance(name, id string, attempt uint32, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, State: state,
		Labels: map[string]string{crilabels.ContainerName: name},
		Image:  &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "image"},
	}
}

func TestPods_ListIsCompleteForAnyContent(t *testing.T) {
	t.Parallel()
	var all []agent.Pod
	for range 500 {
		p := podOf("a", agent.Admitted)
		p.Spec.Annotations = map[string]string{"html": "<b>&", "long": strings.Repeat("x", 1000)}
		p.Spec.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		all = append(all, running(p, "c"))
	}
	for _, want := range [][]agent.Pod{nil, all[:1], all} {
		list := podList(t, &fake{pods: want}, "/pods")
		require.Len(t, list.Items, len(want))
		for i := range want {
			require.Equal(t, *want[i].Spec, list.Items[i])
		}
		for _, path := range []string{"/runningpods", "/runningpods/"} {
			require.Len(t, podList(t, &fake{pods: want}, path).Items, len(want), path)
		}
	}
}

func TestPods_AreThoseThatASourceDefines(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range podList(t, &fake{pods: []agent.Pod{
		podOf("refused", agent.Refused), podOf("runs", agent.Admitted), undefined(podOf("ends", agent.Ending)), podOf("removed", agent.Removed),
	}}, "/pods").Items {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"refused", "runs", "removed"}, names)
}

func TestRunningPods_AreAsTheRuntimeShowsThem(t *testing.T) {
	t.Parallel()
	const (
		ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		runs, exited    = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	)
	with := func(name string, sandbox runtimeapi.PodSandboxState, containers ...*runtimeapi.ContainerStatus) agent.Pod {
		p := podOf(name, agent.Admitted)
		p.Runtime = observed(p, sandbox, containers...)
		return p
	}
	plain := instance("b", "2", 0, runs)
	plain.Image.UserSpecifiedImage = ""
	var got []string
	for _, p := range podList(t, &fake{pods: []agent.Pod{
		with("two", ready, instance("a", "1", 3, runs), plain, instance("a", "0", 2, exited)),
		with("starts", ready),
		with("box-died", notReady, instance("a", "1", 0, runs)),
		with("stopped", notReady, instance("a", "1", 0, exited)),
		undefined(with("ends", ready, instance("a", "1", 0, exited))),
		podOf("absent", agent.Admitted),
	}}, "/runningpods").Items {
		text := p.Namespace + "/" + p.Name + "/" + string(p.UID)
		for _, c := range p.Spec.Containers {
			text += " " + c.Name + "=" + c.Image
		}
		got = append(got, text)
	}
	require.Equal(t, []string{"ns/two/two a=image b=sha256:1", "ns/starts/starts", "ns/box-died/box-died a=image", "ns/ends/ends"}, got)
}
