package api_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func TestExplanationText_HostileTextBeginsNoLine(t *testing.T) {
	t.Parallel()
	const hostile = "x\nWhy:\n  - forged\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"
	hostilePod := func() api.Pod {
		return api.Pod{Namespace: "ns", Name: "p", State: "Running", Phase: "Running"}
	}
	for place, set := range map[string]func(*api.Explanation){
		"namespace":     func(e *api.Explanation) { e.Pod.Namespace = hostile },
		"name":          func(e *api.Explanation) { e.Pod.Name = hostile },
		"state":         func(e *api.Explanation) { e.Pod.State = hostile },
		"phase":         func(e *api.Explanation) { e.Pod.Phase = hostile },
		"why":           func(e *api.Explanation) { e.Why = []string{hostile} },
		"next":          func(e *api.Explanation) { e.Next = []api.Step{{What: hostile}} },
		"next at":       func(e *api.Explanation) { e.Next = []api.Step{{At: new(time.Now()), What: hostile}} },
		"event type":    func(e *api.Explanation) { e.Pod.Events = []api.Event{{Type: hostile}} },
		"event reason":  func(e *api.Explanation) { e.Pod.Events = []api.Event{{Reason: hostile}} },
		"event message": func(e *api.Explanation) { e.Pod.Events = []api.Event{{Message: hostile, Count: 2}} },
		"plan":          func(e *api.Explanation) { e.Plan = strings.ReplaceAll(hostile, "\n", " ") },
		"eviction":      func(e *api.Explanation) { e.EvictionOrder = strings.ReplaceAll(hostile, "\n", " ") },
	} {
		e := api.Explanation{Pod: hostilePod()}
		set(&e)
		text := api.ExplanationText(e)
		require.Equal(t, printable.Lines(text, ""), text, place)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		require.Contains(t, lines[0], " is ", place)
		titles, items := 0, 0
		for _, line := range lines[1:] {
			switch {
			case regexp.MustCompile(`^(Why|Next|Plan|Eviction|Events):$`).MatchString(line):
				titles++
			case strings.HasPrefix(line, "  - "):
				items++
			default:
				require.True(t, strings.HasPrefix(line, "    "), "%s: %q", place, line)
			}
		}
		require.LessOrEqual(t, titles, 1, "%s: %s", place, text)
		require.Equal(t, titles, items, "%s: %s", place, text)
	}
}

// TestExplanationText_Sections checks that the text has each section, and omits empty
// sections.
func TestExplanationText_Sections(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	e := api.Explanation{
		Pod: api.Pod{Namespace: "ns", Name: "p", State: "CrashLoopBackOff", Phase: "Running", Restarts: 3, Events: []api.Event{
			{Time: when, Type: "Warning", Reason: "BackOff", Message: "back-off 10s\nof web ", Count: 7},
			{Time: when, Type: "Normal", Reason: "Pulled", Message: "image", Count: 1},
		}},
		Why:           []string{"web has ended:\n exit code 1\n", "second"},
		Next:          []api.Step{{At: &when, What: "web starts"}, {What: "status is sent"}},
		Plan:          "\nstart web\n\n  stop db  \n",
		EvictionOrder: "3 of 5\nby memory",
	}
	require.Equal(t, `ns/p is CrashLoopBackOff (Running)
Why:
  - web has ended:
     exit code 1
  - second
Next:
  - 03:04:05 web starts
  - status is sent
Plan:
  - start web
  - stop db
Eviction:
  - 3 of 5
  - by memory
Events:
  - 03:04:05 Warning BackOff: back-off 10s
    of web  (7 times)
  - 03:04:05 Normal Pulled: image
`, api.ExplanationText(e))
	e = api.Explanation{Pod: api.Pod{Namespace: "ns", Name: "p", State: "Pending", Phase: "Pending"}, Plan: " \n\n", EvictionOrder: "\t"}
	require.Equal(t, "ns/p is Pending\n", api.ExplanationText(e))
}
