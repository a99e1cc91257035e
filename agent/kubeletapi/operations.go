package kubeletapi

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/imagegc"
)

// Operations changes pods and images on request. *agent.Agent implements it.
type Operations interface {
	// Restart requests that a pod starts again in a new sandbox. It does not wait for the restart.
	Restart(context.Context, types.UID) error
	// Pull pulls an image and returns it when the pull is complete.
	Pull(ctx context.Context, image string) (*runtimeapi.Image, error)
}

// operationEndpoints returns the endpoints of [Operations].
func (s *Server) operationEndpoints() []endpoint {
	post := []string{http.MethodPost}
	restart, pull := withTimeLimit(http.HandlerFunc(s.restart)), http.Handler(s.stream(s.pull))
	if s.cfg.Operations == nil {
		restart = disabled("Restarts and pulls are disabled: this agent does not authenticate its clients.")
		pull = restart
	}
	return []endpoint{{"/agent/restart/{namespace}/{pod}", restart, post}, {"/agent/pull", pull, post}}
}

// restart requests the restart of a pod.
func (s *Server) restart(w http.ResponseWriter, r *http.Request) {
	pod, err := s.requestedPod(r)
	if err != nil {
		refuse(w, err)
		return
	}
	name := pod.Spec.Namespace + "/" + pod.Spec.Name
	switch err := s.cfg.Operations.Restart(r.Context(), pod.Spec.UID); {
	case errors.Is(err, agent.ErrNotRestartable):
		refuse(w, &statusError{code: http.StatusConflict, message: err.Error()})
	case errors.Is(err, agent.ErrUnknownPod):
		refuse(w, notFound("%v", err))
	case err != nil:
		refuse(w, err)
	default:
		s.cfg.Logger.InfoContext(r.Context(), "a restart of a pod was requested", "pod", name, "podUID", pod.Spec.UID)
		writeJSON(w, api.Restart{Namespace: pod.Spec.Namespace, Name: pod.Spec.Name, UID: string(pod.Spec.UID)})
	}
}

// pull pulls the image in the query parameter image. The response comes when the pull is
// complete. If the client disconnects, the pull is cancelled.
func (s *Server) pull(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("image")
	if name == "" {
		refuse(w, badRequestf("image: the parameter is missing"))
		return
	}
	image, err := s.cfg.Operations.Pull(r.Context(), name)
	switch {
	case errors.Is(err, agent.ErrInvalidImageName):
		refuse(w, badRequest(err))
	case err != nil:
		refuse(w, err)
	default:
		s.cfg.Logger.InfoContext(r.Context(), "an image was pulled on request", "image", name, "imageID", image.GetId())
		writeJSON(w, api.Image{
			ID: image.GetId(), Tags: image.GetRepoTags(), Digests: image.GetRepoDigests(), SizeBytes: image.GetSize(), Pinned: image.GetPinned(),
		})
	}
}

// images responds with the images of the runtime, and what garbage collection would do with
// them.
func (s *Server) images(w http.ResponseWriter, r *http.Request) {
	plan, err := s.cfg.Agent.Plan(r.Context())
	if plan.Images.At.IsZero() && err != nil {
		refuse(w, err)
		return
	}
	s.logIncomplete(r.Context(), "garbage collection", err)
	list := api.ImageList{Now: plan.Images.At, Items: []api.Image{}}
	for _, d := range plan.Images.Decisions {
		list.Items = append(list.Items, imageOfDecision(d))
	}
	writeJSON(w, list)
}

func imageOfDecision(d imagegc.Decision) api.Image {
	return api.Image{
		ID: d.Image.ID, Tags: d.Image.Tags, Digests: d.Image.Digests, SizeBytes: d.Image.SizeBytes, Pinned: d.Image.Pinned,
		Containers: d.Image.Containers, LastUsed: timeOf(d.Image.LastUsed), FirstSeen: timeOf(d.Image.FirstDetected),
		Delete: d.Delete, Reason: string(d.Reason),
	}
}
