package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/internal/describe"
)

// explain responds with the reasons for a pod's state and the next steps of the agent.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	text, err := wantsText(r)
	if err != nil {
		refuse(w, badRequest(err))
		return
	}
	e, err := s.explanation(r.Context(), r.PathValue("namespace"), r.PathValue("pod"))
	switch {
	case err != nil:
		refuse(w, err)
	case text:
		w.Header().Set("Content-Type", plainText)
		fmt.Fprint(w, api.ExplanationText(e))
	default:
		writeJSON(w, e)
	}
}

func (s *Server) explanation(ctx context.Context, namespace, name string) (api.Explanation, error) {
	invalid, ignored := s.problemsOf(namespace, name)
	pod, ok := s.findPod(namespace, name)
	switch {
	case !ok && len(invalid) > 0:
		return badManifest(namespace, name, invalid), nil
	case !ok:
		return api.Explanation{}, notFound("pod %q not found in namespace %q, and no manifest with that name has a problem", name, namespace)
	}
	e, err := s.cfg.Agent.Explain(ctx, pod.Spec.UID)
	switch {
	case errors.Is(err, agent.ErrUnknownPod):
		return api.Explanation{}, notFound("pod %q not found in namespace %q: it was removed in the meantime", name, namespace)
	case err != nil && len(e.Why) == 0:
		return api.Explanation{}, err
	case err != nil:
		s.cfg.Logger.DebugContext(ctx, "the explanation of a pod is incomplete", "pod", namespace+"/"+name, "err", err)
	}
	out := api.Explanation{
		Pod: describe.Pod(s.podFacts(e.Pod, s.usage(ctx))),
		Why: []string{}, Next: []api.Step{}, Plan: strings.TrimSpace(e.Plan), EvictionOrder: e.Rank,
	}
	for _, p := range invalid {
		out.Why = append(out.Why, "a manifest of this pod is invalid, its last valid version is in use: "+p)
	}
	for _, p := range ignored {
		out.Why = append(out.Why, "another manifest of this pod is ignored: "+p)
	}
	out.Why = append(out.Why, e.Why...)
	for _, step := range e.Next {
		out.Next = append(out.Next, api.Step{At: timeOf(step.At), What: step.What})
	}
	return out, nil
}

// badManifest explains a pod that does not exist because its manifest has problems.
func badManifest(namespace, name string, problems []string) api.Explanation {
	return api.Explanation{
		Pod:  api.Pod{Namespace: namespace, Name: name, State: "InvalidManifest", Containers: []api.Container{}},
		Why:  problems,
		Next: []api.Step{{What: "the agent starts the pod when its manifest is corrected"}},
	}
}

// problemsOf returns two kinds of problems of a pod's manifests. The first result has the problems
// of manifests whose file has the pod's name. problemsOf compares file names, because a manifest
// that can't be parsed has no pod name. The second result has the problems of manifests that the
// agent does not use, because another manifest already defines the pod.
func (s *Server) problemsOf(namespace, name string) (invalid, ignored []string) {
	name = s.shortName(name)
	for _, p := range s.cfg.Problems() {
		file := filepath.Base(p.File)
		var bad *field.Error
		switch {
		case errors.As(p, &bad) && bad.Type == field.ErrorTypeDuplicate && bad.Field == "metadata.name":
			if bad.BadValue == namespace+"/"+name+s.nodeSuffix() {
				ignored = append(ignored, p.Error())
			}
		case strings.TrimSuffix(file, filepath.Ext(file)) == name:
			invalid = append(invalid, p.Error())
		}
	}
	return invalid, ignored
}
