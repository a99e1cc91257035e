package kubeletapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// alive is the check of /livez. It always passes.
func alive() Check { return Check{Name: "ping", Run: func() error { return nil }} }

func (s *Server) livezChecks() []Check { return []Check{alive()} }

// notReadyTimeout is how long the node may be not ready before /healthz fails on every error. The
// agent reports the node as not ready if the runtime has not responded for 30 seconds. If the
// runtime reports that the runtime or the network is not ready, the agent reports this at once.
const notReadyTimeout = 30 * time.Second

// healthzChecks returns the checks of /healthz. A part of the agent that has an error fails its
// check if the error is fatal, or if the node was not ready for notReadyTimeout.
func (s *Server) healthzChecks() []Check {
	ready := s.wasReady(s.cfg.Agent.Node())
	return s.checks(func(c agent.Check) bool { return c.Fatal || !ready })
}

// readyzChecks returns the checks of /readyz. A part of the agent fails its check on every error.
func (s *Server) readyzChecks() []Check {
	return s.checks(func(agent.Check) bool { return true })
}

// checks returns all checks. It calls the given function for each check of the agent that has an
// error. If the function returns false, the check passes, and the error becomes a note.
func (s *Server) checks(fails func(agent.Check) bool) []Check {
	all := []Check{alive()}
	for _, c := range s.cfg.Agent.Health() {
		err, notes := c.Err, c.Notes
		if err != nil && !fails(c) {
			err, notes = nil, append([]string{c.Err.Error()}, notes...)
		}
		all = append(all, Check{
			Name: c.Name, Run: func() error { return err }, Notes: func() []string { return notes },
		})
	}
	return append(all, s.cfg.Checks...)
}

// wasReady reports whether the condition Ready of a node is true, or was true within
// notReadyTimeout. A node that is nil or has no conditions counts as ready, because the agent has
// not computed the conditions yet.
func (s *Server) wasReady(node *corev1.Node) bool {
	return node == nil || !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue &&
			s.cfg.Clock.Since(c.LastTransitionTime.Time) >= notReadyTimeout
	})
}

// healthHandler responds with "ok" if every check passes, otherwise with 500 and the failed
// checks. With ?verbose the response lists every check.
func (s *Server) healthHandler(endpoint string, checks func() []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		all, failed := healthReport(s.observedChecks(endpoint, checks()), query["exclude"])
		w.Header().Set("Content-Type", plainText)
		verdict := "passed"
		if failed != "" {
			verdict = "failed"
			w.WriteHeader(http.StatusInternalServerError)
		}
		switch {
		case query.Has("verbose"):
			fmt.Fprintf(w, "%s%s check %s\n", all, endpoint, verdict)
		case failed != "":
			fmt.Fprint(w, failed)
		default:
			fmt.Fprint(w, "ok")
		}
	}
}

// observedChecks returns checks that pass their results to the Observer.
func (s *Server) observedChecks(endpoint string, checks []Check) []Check {
	if s.cfg.Observer.Checked == nil {
		return checks
	}
	observed := slices.Clone(checks)
	for i, c := range checks {
		observed[i].Run = func() error {
			err := c.Run()
			s.cfg.Observer.Checked(endpoint, c.Name, err)
			return err
		}
	}
	return observed
}

// healthCheck responds to /healthz/NAME with the result of one check of /healthz, in the form of
// the kubelet. As in the kubelet, /healthz/ping, /healthz/log and /healthz/syncloop also exist.
func (s *Server) healthCheck(w http.ResponseWriter, r *http.Request) {
	checks := append(s.healthzChecks(),
		Check{Name: "log", Run: func() error { return nil }}, // no log line waits in a buffer
		Check{Name: "syncloop", Run: s.fatalError})
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == r.PathValue("check") })
	if i < 0 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", plainText)
	if err := checks[i].Run(); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "internal server error: %s\n", printable.Lines(err.Error(), "  "))
		return
	}
	fmt.Fprint(w, "ok")
}

// fatalError returns the errors of the agent that only a restart of the agent resolves.
func (s *Server) fatalError() error {
	var errs []error
	for _, c := range s.cfg.Agent.Health() {
		if c.Fatal {
			errs = append(errs, c.Err)
		}
	}
	return errors.Join(errs...)
}

// healthReport runs the checks that are not excluded. It returns the lines of all checks, and
// the lines of the failed checks.
func healthReport(checks []Check, excluded []string) (string, string) {
	var all, failed strings.Builder
	for _, c := range checks {
		if slices.Contains(excluded, c.Name) {
			fmt.Fprintf(&all, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		line := fmt.Sprintf("[+]%s ok\n", c.Name)
		if err := c.Run(); err != nil {
			line = fmt.Sprintf("[-]%s failed: %s\n", c.Name, printable.Lines(err.Error(), "  "))
			failed.WriteString(line)
		}
		all.WriteString(line)
		if c.Notes == nil {
			continue
		}
		for _, note := range c.Notes() {
			fmt.Fprintf(&all, "  %s\n", printable.Lines(note, "  "))
		}
	}
	for _, name := range excluded {
		// An unknown name is not an error, because a probe may be written for several versions of
		// an agent. If the probe failed, the kubelet would restart this agent.
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
			fmt.Fprintf(&all, "[?]%q is not a check of this agent\n", name)
		}
	}
	return all.String(), failed.String()
}
