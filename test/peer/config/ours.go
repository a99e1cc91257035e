package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// ours reads the file with agent/kubeletconfig.
func (k *kubelet) ours(t *testing.T, w *world) []judge.Facts {
	t.Helper()
	f := judge.Facts{}
	w.dir = filepath.Dir(k.file)
	require.NoError(t, os.WriteFile(k.file, []byte(w.text()), 0o600))
	file, err := kubeletconfig.Load(k.file)
	if err == nil {
		addNotes(t, f, file.Notes)
		addValues(t, f, file.Settings)
		addThresholds(t, f, file.Settings)
		return []judge.Facts{f}
	}
	all := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		all = many.Unwrap()
	}
	var problems []kubeletconfig.Problem
	for _, err := range all {
		p, ok := errors.AsType[kubeletconfig.Problem](err)
		if !ok {
			return []judge.Facts{{"decode": "refused", "text": strings.ReplaceAll(err.Error(), k.file, "FILE")}}
		}
		require.Equal(t, k.file+": "+lineText(p), err.Error())
		problems = append(problems, p)
		addProblem(f, p)
	}
	if f["decode"] != "" {
		f = judge.Facts{"decode": "refused"}
	}
	addLines(t, f, problems)
	return []judge.Facts{f}
}

// lineText prints a problem as one line.
func lineText(p kubeletconfig.Problem) string {
	text := p.Text
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Line > 0 {
		text = "line " + strconv.Itoa(p.Line) + ": " + text
	}
	return text
}

// addNotes adds a fact for each ignored field, for the notes about users and TLS, and for the
// default thresholds that do not apply because the file sets evictionHard without them.
func addNotes(t *testing.T, f judge.Facts, notes []kubeletconfig.Problem) {
	t.Helper()
	for _, note := range notes {
		if strings.HasPrefix(note.Text, "ignored: ") {
			f["ignored "+note.Field] = "yes"
			continue
		}
		if strings.HasPrefix(note.Field, "tls") || note.Field == "authentication" {
			f["remark "+note.Field] = "yes"
			continue
		}
		rest, ok := strings.CutPrefix(note.Text, "the default thresholds of ")
		signals, _, more := strings.Cut(rest, " are disabled, ")
		require.True(t, ok && more, note.Text)
		f["lost "+note.Field] = signals
	}
	addLines(t, f, notes)
}

// addLines adds the line number of each field in a problem: one fact for the first line of
// the field and one fact for its repetitions. Lines come in ascending order.
func addLines(t *testing.T, f judge.Facts, all []kubeletconfig.Problem) {
	t.Helper()
	last := 0
	for _, p := range all {
		require.GreaterOrEqual(t, p.Line, last)
		last = p.Line
		if p.Field == "" {
			continue
		}
		name := "line " + fieldName(p)
		if strings.HasPrefix(p.Text, "is already set") && p.Field == fieldName(p) {
			name = "again " + fieldName(p)
		}
		lines := strings.Fields(f[name])
		if line := strconv.Itoa(p.Line); !slices.Contains(lines, line) {
			f[name] = strings.Join(append(lines, line), " ")
		}
	}
}

// addThresholds adds the thresholds of the eviction manager's policy.
func addThresholds(t *testing.T, f judge.Facts, s kubeletconfig.Settings) {
	t.Helper()
	all, err := s.Thresholds()
	require.NoError(t, err)
	for _, threshold := range all {
		value := threshold.Value.String()
		if threshold.MinReclaim.Quantity != 0 || threshold.MinReclaim.Fraction != 0 {
			value += " and " + threshold.MinReclaim.String()
		}
		f["threshold "+string(threshold.Signal)+" "+threshold.GracePeriod.String()] = value
	}
}

// fieldName returns the field of the file that a problem is about.
func fieldName(p kubeletconfig.Problem) string {
	name, _, _ := strings.Cut(p.Field, ".")
	name, _, _ = strings.Cut(name, "[")
	return name
}

// addProblem adds a fact for a problem, by the kind of the problem.
func addProblem(f judge.Facts, p kubeletconfig.Problem) {
	field := fieldName(p)
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
