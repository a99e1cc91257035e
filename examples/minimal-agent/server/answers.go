package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

const (
	plainText = "text/plain; charset=utf-8"
	jsonText  = "application/json"
)

func (s *Server) pods(w http.ResponseWriter, r *http.Request) { s.writePods(w, r, s.cfg.Pods()) }

func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := s.cfg.RunningPods(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	s.writePods(w, r, pods)
}

// writePods writes a PodList a pod at a time: there may be many, and large ones.
func (s *Server) writePods(w http.ResponseWriter, r *http.Request, pods []*corev1.Pod) {
	w.Header().Set("Content-Type", jsonText)
	buffered := bufio.NewWriterSize(w, 32<<10)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false) // nosniff says what it is
	fmt.Fprint(buffered, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
	for i, p := range pods {
		if i > 0 {
			fmt.Fprint(buffered, ",")
		}
		// Clients that went away are no errors of ours; a pod always marshals.
		if err := encoder.Encode(p); err != nil || r.Context().Err() != nil {
			return
		}
	}
	fmt.Fprintln(buffered, "]}")
	_ = buffered.Flush()
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, s.cfg.Status(r.Context()))
}

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.cfg.Configz()) }

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	summary, err := s.cfg.Summary(r.Context())
	switch {
	case summary == nil:
		refuse(w, errors.Join(errors.New("there are no figures"), err))
		return
	case err != nil:
		s.cfg.Logger.DebugContext(r.Context(), "some figures are missing", "err", err)
	}
	// The kubelet takes any other value for none, and so do those that ask it.
	if v := r.URL.Query()["only_cpu_and_memory"]; len(v) == 1 && v[0] == "true" {
		summary = cpuAndMemory(summary)
	}
	writeJSON(w, summary)
}

// cpuAndMemory is the part of a summary that autoscalers read.
func cpuAndMemory(all *statsapi.Summary) *statsapi.Summary {
	containers := func(in []statsapi.ContainerStats) (out []statsapi.ContainerStats) {
		for _, c := range in {
			out = append(out, statsapi.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap})
		}
		return out
	}
	n := all.Node
	out := &statsapi.Summary{
		Node: statsapi.NodeStats{
			NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU, Memory: n.Memory, Swap: n.Swap,
			SystemContainers: containers(n.SystemContainers),
		},
		Pods: []statsapi.PodStats{},
	}
	for _, p := range all.Pods {
		out.Pods = append(out.Pods, statsapi.PodStats{
			PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Swap: p.Swap,
			Containers: containers(p.Containers),
		})
	}
	return out
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	text, err := wantsText(r)
	if err != nil {
		refuse(w, badRequest(err))
		return
	}
	e, err := s.cfg.Explain(r.Context(), r.PathValue("namespace"), r.PathValue("pod"))
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

func (s *Server) plan(make PlanFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := wantsText(r)
		if err != nil {
			refuse(w, badRequest(err))
			return
		}
		p, err := make(r.Context())
		switch {
		case err != nil:
			refuse(w, err)
		case text:
			w.Header().Set("Content-Type", plainText)
			fmt.Fprintln(w, printable.Lines(strings.TrimSuffix(p.String(), "\n"), ""))
		default:
			writeJSON(w, p)
		}
	}
}

// wantsText says whether a request prefers text to JSON.
func wantsText(r *http.Request) (bool, error) {
	switch output := r.URL.Query().Get("output"); output {
	case "":
		return prefers(r, "text/plain", jsonText), nil
	case "text", "json":
		return output == "text", nil
	default:
		return false, fmt.Errorf("output=%q: want text or json", output)
	}
}

// yes reads a query that is true or false. By its name alone, as in ?follow, it is true.
func yes(query url.Values, name string) (bool, error) {
	values := query[name]
	switch {
	case len(values) == 0:
		return false, nil
	case len(values) > 1:
		return false, fmt.Errorf("%s: is there %d times", name, len(values))
	case values[0] == "":
		return true, nil
	}
	v, err := strconv.ParseBool(values[0])
	if err != nil {
		return false, fmt.Errorf("%s=%q: want true or false", name, values[0])
	}
	return v, nil
}

// badRequest says that err is the client's mistake.
func badRequest(err error) error {
	return &StatusError{Code: http.StatusBadRequest, Message: err.Error()}
}

// prefers says whether the Accept header names a before b, if at all. How much it
// likes them (q=) is not looked at.
func prefers(r *http.Request, a, b string) bool {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, _, err := mime.ParseMediaType(accepted)
		switch {
		case err != nil:
		case kind == a:
			return true
		case kind == b:
			return false
		}
	}
	return false
}

// refuse answers with an error and its code.
func refuse(w http.ResponseWriter, err error) {
	writeWithin(w, pageTimeout)
	code := http.StatusInternalServerError
	if e, ok := errors.AsType[*StatusError](err); ok {
		code = e.Code
	}
	http.Error(w, printable.Lines(err.Error(), "  "), code)
}

func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", jsonText)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	_, _ = w.Write(append(data, '\n')) // a client that went away is no error of ours
}
