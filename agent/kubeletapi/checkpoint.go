package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/internal/describe"
)

// Checkpointer writes checkpoints of containers. *cri.Client implements it.
type Checkpointer interface {
	// CheckpointContainer writes a checkpoint of the container ContainerId to the file Location
	// within Timeout seconds. A Timeout of 0 means the default of the CRI client.
	CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error
}

// checkpoint writes a checkpoint of a container, and responds with the path of its file. The
// codes and the texts of errors are the kubelet's.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, ok := s.findPod(namespace, name)
	if !ok {
		refuse(w, notFound("pod does not exist"))
		return
	}
	if !slices.Contains(describe.Containers(pod.Spec), container) {
		refuse(w, notFound("container %v does not exist", container))
		return
	}
	var timeout int64
	if texts := r.URL.Query()["timeout"]; len(texts) > 0 {
		var err error
		if timeout, err = strconv.ParseInt(texts[len(texts)-1], 10, 64); err != nil {
			refuse(w, notFound("cannot parse value of timeout parameter"))
			return
		}
	}
	file, err := s.writeCheckpoint(r.Context(), pod, container, timeout)
	if err != nil {
		refuse(w, fmt.Errorf("checkpointing of %s/%s/%s failed (%w)", namespace, name, container, err))
		return
	}
	writeJSON(w, map[string][]string{"items": {file}})
}

// writeCheckpoint writes a checkpoint of a running container, and returns the path of its file.
func (s *Server) writeCheckpoint(ctx context.Context, pod agent.Pod, container string, timeout int64) (string, error) {
	c := pod.Runtime.Container(container)
	switch {
	case c == nil || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING:
		return "", fmt.Errorf("container %s not found", container)
	case timeout < 0:
		return "", errors.New("the timeout is negative")
	}
	// A checkpoint has the memory of a process, so only the agent's user may read it.
	if err := os.MkdirAll(s.cfg.CheckpointDir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(s.cfg.CheckpointDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar",
		pod.Spec.Name, pod.Spec.Namespace, container, s.cfg.Clock.Now().Format(time.RFC3339)))
	return file, s.cfg.Checkpoints.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: c.GetId(), Location: file, Timeout: timeout,
	})
}
