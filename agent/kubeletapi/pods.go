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

// pods answers with the pods that a source defines, with their statuses.
func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	var pods []*corev1.Pod
	for _, p := range s.cfg.Agent.Pods() {
		if p.Source != "" {
			pods = append(pods, p.Spec)
		}
	}
	s.writePods(w, r, pods)
}

// runningPods answers with the pods that run, as the runtime shows them.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	var pods []*corev1.Pod
	for _, p := range s.cfg.Agent.Pods() {
		if running, ok := runningPod(p); ok {
			pods = append(pods, running)
		}
	}
	s.writePods(w, r, pods)
}

// runningPod returns a pod in the form of the kubelet's /runningpods: its names, and the names
// and images of its running containers. It returns false if no sandbox of the pod is ready and
// no container runs.
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

// imageOf returns the image of a container as the pod names it. The runtime names the image that
// it has resolved that to, which counts only if the pod is not defined any more.
func imageOf(pod *corev1.Pod, name string, c *runtimeapi.ContainerStatus) string {
	if defined := podspec.Container(&pod.Spec, name); defined != nil {
		return defined.Image
	}
	return cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage())
}

// writePods writes a PodList one pod at a time, so that it does not hold all of them in JSON.
func (s *Server) writePods(w http.ResponseWriter, r *http.Request, pods []*corev1.Pod) {
	w.Header().Set("Content-Type", jsonText)
	buffered := bufio.NewWriterSize(w, 32<<10)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false) // the header nosniff keeps browsers from reading it as HTML
	fmt.Fprint(buffered, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
	for i, p := range pods {
		if i > 0 {
			fmt.Fprint(buffered, ",")
		}
		// A pod always marshals, so the error is that of a client that has gone.
		if err := encoder.Encode(p); err != nil || r.Context().Err() != nil {
			return
		}
	}
	fmt.Fprintln(buffered, "]}")
	_ = buffered.Flush()
}

// findPod returns a pod by its namespace and name. The name may lack the suffix with the
// node's name that the names of static pods have. A pod that a source defines wins over one
// that no source defines.
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

// precedes reports whether the name means p rather than other: defined pods come first, then
// the pod with exactly that name.
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
