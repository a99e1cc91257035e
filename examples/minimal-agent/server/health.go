package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// Check is one thing that health depends on.
type Check struct {
	// Name is told in ?verbose, and left out with ?exclude=Name.
	Name string
	// Run returns why it is not as it should be, nil if it is. It must not wait.
	Run func() error
	// Notes are lines for ?verbose that make nobody unhealthy. Optional.
	Notes func() []string
	// ReadyOnly keeps it out of /healthz: no restart of the agent would help.
	ReadyOnly bool
	// Patient, if there, is what /healthz asks instead of Run: something that may be
	// wrong for a while before it counts.
	Patient func() error
}

// Alive is the check of /livez.
func Alive() Check { return Check{Name: "ping", Run: func() error { return nil }} }

// healthzChecks are those of /healthz.
func healthzChecks(checks []Check) (out []Check) {
	for _, c := range checks {
		if c.Patient != nil {
			c.Run = c.Patient
		}
		if !c.ReadyOnly {
			out = append(out, c)
		}
	}
	return out
}

// healthHandler answers "ok" when every check passes, else 503 and the failing ones.
// With ?verbose it names every check.
func healthHandler(endpoint string, checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		all, failed := healthReport(checks, query["exclude"])
		w.Header().Set("Content-Type", plainText)
		verdict := "passed"
		if failed != "" {
			verdict = "failed"
			w.WriteHeader(http.StatusServiceUnavailable)
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

// healthReport asks the checks but for those excluded, and returns the lines of all and
// of those that failed.
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
		// No error: who asks may ask agents of several versions, and would restart this one.
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
			fmt.Fprintf(&all, "[?]%q is not there to be excluded\n", name)
		}
	}
	return all.String(), failed.String()
}
