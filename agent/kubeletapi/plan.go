package kubeletapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// gcPlan is what garbage collection would delete now.
type gcPlan struct {
	Images     imagegc.Plan     `json:"images"`
	Containers containergc.Plan `json:"containers"`
}

// String returns the plan as text.
func (p gcPlan) String() string {
	return fmt.Sprintf("containers:\n%s\nimages:\n%s", p.Containers, p.Images)
}

// evictionPlan returns what eviction would do now. If the agent returns both a decision and an
// error, evictionPlan only logs the error, because the decision names the signals that could
// not be measured.
func (s *Server) evictionPlan(ctx context.Context) (fmt.Stringer, error) {
	decision, err := s.cfg.Agent.PlanEviction(ctx)
	if decision.At.IsZero() && err != nil {
		return nil, err
	}
	s.logIncomplete(ctx, "eviction", err)
	return decision, nil
}

// gcPlan returns what garbage collection would delete now. If the agent returns both plans and
// an error, gcPlan only logs the error.
func (s *Server) gcPlan(ctx context.Context) (fmt.Stringer, error) {
	p, err := s.cfg.Agent.Plan(ctx)
	if (p.Images.At.IsZero() || p.Containers.At.IsZero()) && err != nil {
		return nil, err
	}
	s.logIncomplete(ctx, "garbage collection", err)
	return gcPlan{p.Images, p.Containers}, nil
}

func (s *Server) logIncomplete(ctx context.Context, of string, err error) {
	if err != nil {
		s.cfg.Logger.DebugContext(ctx, "a plan of eviction or garbage collection is incomplete, some facts could not be measured", "of", of, "err", err)
	}
}

// plan responds with a plan as text or JSON.
func (s *Server) plan(of func(context.Context) (fmt.Stringer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := wantsText(r)
		if err != nil {
			refuse(w, badRequest(err))
			return
		}
		p, err := of(r.Context())
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
