//go:build e2e

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// web is the simplest pod.
const web = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: kubeparts.test/testserver:1
`

func TestPod_RunsAndRespondsAtItsIP(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	begin := time.Now()
	n.write("web.yaml", web)
	pod := n.waitRunning("web")
	t.Logf("from the manifest to Running: %v", time.Since(begin).Round(10*time.Millisecond))

	require.Equal(t, "default", pod.Namespace)
	require.Equal(t, n.hostname, pod.Spec.NodeName)
	require.NotEmpty(t, pod.Status.PodIP)
	require.Equal(t, []corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs)
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		require.Equal(t, corev1.ConditionTrue, conditionStatus(pod, kind), "condition %s", kind)
	}
	c := containerStatus(t, pod, "web")
	require.True(t, c.Ready)
	require.Zero(t, c.RestartCount)
	require.Equal(t, imageServer, c.Image)

	found := bed.instances(t, podLabels(pod))
	require.Len(t, found, 1)
	require.Equal(t, "containerd://"+found[0].ID, c.ContainerID)
	waitFor(t, 5*time.Second, "the pod to respond", func() (string, bool) {
		code, body, err := httpGet("http://" + pod.Status.PodIP + ":8080/")
		return body, err == nil && code == http.StatusOK && strings.TrimSpace(body) == "testserver"
	})
}

func TestLabels_AreSetOnSandboxAndContainers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("web.yaml", web)
	n.start()
	pod := n.waitRunning("web")

	labels := map[string]string{
		labelAgent: n.name, labelPodName: "web-" + n.hostname, labelPodNamespace: "default", labelPodUID: string(pod.UID),
	}
	sandboxes, err := bed.sandboxes(labels)
	require.NoError(t, err)
	require.Len(t, sandboxes, 1)
	labels[labelContainerName] = "web"
	found := bed.instances(t, labels)
	require.Len(t, found, 1)
	require.Equal(t, "0", found[0].Restarts)
	require.Equal(t, sandboxes[0], found[0].Sandbox)
	require.FileExists(t, n.logFile(pod, "web", 0))
}

func TestInitContainers_RunInOrderBeforeMainContainer(t *testing.T) {
	t.Parallel()
	n, gate := newNode(t), t.TempDir()
	n.start()
	n.write("ordered.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: ordered
spec:
  initContainers:
  - {name: first, image: kubeparts.test/testserver:1, args: [sleep, "1.2"]}
  - name: second
    image: kubeparts.test/busybox:1
    command: [sh, -c, "until [ -e /gate/open ]; do sleep 0.1; done"]
    volumeMounts: [{name: gate, mountPath: /gate}]
  containers:
  - {name: main, image: kubeparts.test/testserver:1}
  volumes:
  - {name: gate, hostPath: {path: `+gate+`}}
`)
	pod := n.waitPod(startTimeout, "ordered", "to have its second init container running", func(pod *corev1.Pod) bool {
		init := pod.Status.InitContainerStatuses
		return len(init) == 2 && init[1].State.Running != nil
	})
	require.Equal(t, corev1.PodPending, pod.Status.Phase)
	require.Equal(t, corev1.ConditionFalse, conditionStatus(pod, corev1.PodInitialized))
	require.Equal(t, "PodInitializing", containerStatus(t, pod, "main").State.Waiting.Reason)

	require.NoError(t, os.WriteFile(filepath.Join(gate, "open"), nil, 0o600))
	pod = n.waitRunning("ordered")
	require.Equal(t, corev1.ConditionTrue, conditionStatus(pod, corev1.PodInitialized))
	for _, c := range pod.Status.InitContainerStatuses {
		require.NotNil(t, c.State.Terminated, c.Name)
		require.Zero(t, c.State.Terminated.ExitCode, c.Name)
		require.Equal(t, "Completed", c.State.Terminated.Reason, c.Name)
	}

	// The API's times have whole seconds; the runtime's times prove the order.
	found := bed.instances(t, podLabels(pod))
	t.Log(found)
	require.Len(t, found, 3)
	for i, name := range []string{"first", "second", "main"} {
		require.Equal(t, name, found[i].Name)
		if i > 0 {
			require.False(t, found[i].Started.Before(found[i-1].Finished), "%s started before %s had exited", name, found[i-1].Name)
		}
	}
}

func TestImagePull_PullsMissingImage(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	spec := &runtimeapi.ImageSpec{Image: imagePulled}
	_, err := bed.images.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec})
	require.NoError(t, err)
	n.write("pulled.yaml", strings.ReplaceAll(web, imageServer, imagePulled))
	n.start()
	n.waitRunning("web")
	st, err := bed.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec})
	require.NoError(t, err)
	require.NotNil(t, st.GetImage())
}

func TestImagePull_FailureIsReportedAndOtherPodRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("unknown.yaml", strings.NewReplacer("name: web", "name: unknown", imageServer, "kubeparts.test/nosuch:1").Replace(web))
	n.write("web.yaml", web)
	n.start()
	n.waitRunning("web")
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
		n.waitPod(startTimeout, "unknown", "to wait with "+reason, func(pod *corev1.Pod) bool {
			st := pod.Status.ContainerStatuses
			return pod.Status.Phase == corev1.PodPending && len(st) == 1 &&
				st[0].State.Waiting != nil && st[0].State.Waiting.Reason == reason &&
				strings.Contains(st[0].State.Waiting.Message, "kubeparts.test/nosuch:1")
		})
	}
}

func conditionStatus(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
