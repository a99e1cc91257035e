package kubeletapi

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// pods responds with the pods that a source defines, with their statuses.
func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	var pods []*corev1.Pod
	for _, p := range s.cfg.Agent.Pods() {
		if p.Source != "" {
			pods = append(pods, p.Spec)
		}
	}
	s.writePods(w, r, pods)
}

// runningPods responds with the running pods, as the agent has observed them in the runtime.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	var pods []*corev1.Pod
	for _, p := range s.cfg.Agent.Pods() {
		if running, ok := runningPod(p); ok {
			pods = append(pods, running)
		}
	}
	s.writePods(w, r, pods)
}

// runningPod returns a pod as in the kubelet's /runningpods: namespace, name and UID of the pod,
// and the names and images of its running containers. It returns false if the pod has no ready
// sandbox and no running container.
func runningPod(p agent.Pod) (pod *corev1.Pod, running bool) {
	observed := p.Runtime
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: observed.Namespace, Name: observed.Name, UID: observed.UID}}
	for _, b := range observed.Sandboxes {
		running = running || b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	for _, c := range observed.Containers {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running = true
			name := podcache.ContainerName(c)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: imageOf(p.Spec, name, c)})
		}
	}
	return pod, running
}

// imageOf returns the image of a container as in the pod's spec. If the spec does not have the
// container, imageOf returns the name of the image in the runtime.
func imageOf(pod *corev1.Pod, name string, c *runtimeapi.ContainerStatus) string {
	if defined := podspec.Container(&pod.Spec, name); defined != nil {
		return defined.Image
	}
	return cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage())
}

// writePods writes a PodList one pod at a time, so that the whole JSON is never in memory.
func (s *Server) writePods(w http.ResponseWriter, r *http.Request, pods []*corev1.Pod) {
	w.Header().Set("Content-Type", jsonText)
	buffered := bufio.NewWriterSize(w, 32<<10)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false) // because of the nosniff header, browsers never interpret the response as HTML
	fmt.Fprint(buffered, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
	for i, p := range pods {
		if i > 0 {
			fmt.Fprint(buffered, ",")
		}
		// Pods can always be encoded, so an error means that the client has disconnected.
		if err := encoder.Encode(p); err != nil || r.Context().Err() != nil {
			return
		}
	}
	fmt.Fprintln(buffered, "]}")
	_ = buffered.Flush()
}

// findPod returns a pod by its namespace and name. For a static pod, the name may omit the
// suffix with the node's name. If several pods match, findPod prefers a pod that a source
// defines.
func (s *Server) findPod(namespace, name string) (found agent.Pod, ok bool) {
	suffix := s.nodeSuffix()
	for _, p := range s.cfg.Agent.Pods() {
		if p.Spec.Namespace != namespace || p.Spec.Name != name && p.Spec.Name != name+suffix {
			continue
		}
		if !ok || precedes(name, p, found) {
			found, ok = p, true
		}
	}
	return found, ok
}

// precedes reports whether the first pod matches the name better than the second pod. A pod that a
// source defines matches better than a pod without a source. If a source defines both pods or
// neither, the pod with exactly this name matches better.
func precedes(name string, p, other agent.Pod) bool {
	if defined := p.Source != ""; defined != (other.Source != "") {
		return defined
	}
	return p.Spec.Name == name && other.Spec.Name != name
}

// nodeSuffix returns the suffix of the names of static pods.
func (s *Server) nodeSuffix() string {
	node := s.cfg.Agent.Node()
	if node == nil {
		return ""
	}
	return "-" + node.Name
}

// shortName returns a pod's name without the suffix of the node's name.
func (s *Server) shortName(name string) string { return strings.TrimSuffix(name, s.nodeSuffix()) }
