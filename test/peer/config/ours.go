package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/config"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func ours(t *testing.T, w *world) []judge.Facts {
	t.Helper()
	f := judge.Facts{}
	file, err := config.Parse([]byte(w.text()))
	if err == nil {
		for _, note := range file.Notes {
			if strings.HasPrefix(note.Text, "ignored: ") {
				f["ignored "+note.Field] = "yes"
			}
		}
		addValues(t, f, file.Settings)
		return []judge.Facts{f}
	}
	all := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		all = many.Unwrap()
	}
	for _, err := range all {
		if p, ok := errors.AsType[config.Problem](err); ok {
			addProblem(f, p)
		}
	}
	if f["decode"] != "" {
		return []judge.Facts{{"decode": "refused"}}
	}
	return []judge.Facts{f}
}

// addProblem adds a problem by what kind it is.
func addProblem(f judge.Facts, p config.Problem) {
	field, _, _ := strings.Cut(p.Field, ".")
	field, _, _ = strings.Cut(field, "[")
	switch {
	case strings.HasPrefix(p.Text, "not implemented: "):
		f["not implemented "+field] = "yes"
	case strings.HasPrefix(p.Text, "unknown field"), strings.HasPrefix(p.Text, "is already set"), strings.HasPrefix(p.Text, "more than one document"):
		f["strict "+field] = "yes"
	case field == "apiVersion", field == "kind", field == "", strings.HasPrefix(p.Text, "want ") && strings.Contains(p.Text, ", got "):
		f["decode"] = "refused"
	case strings.HasPrefix(field, "eviction") && field != "evictionPressureTransitionPeriod":
		f["refused eviction"] = "yes"
	default:
		f["refused "+field] = "yes"
	}
}
