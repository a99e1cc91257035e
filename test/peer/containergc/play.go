package containergc

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// An agent is one side: it runs one pass of its manager and returns the error. If all is set,
// the pass removes every unused object.
type agent func(ctx context.Context, all bool) error

// play plays a world with one side and returns the facts of each step.
func play(t *testing.T, w *World, root string, side func(*testing.T, *node) agent) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx := klog.NewContext(t.Context(), logr.Discard())
		n, err := newNode(w, root)
		require.NoError(t, err)
		pass := side(t, n)
		for i, s := range w.Steps {
			time.Sleep(s.After)
			n.calls, n.events, n.removed, n.told = map[string]string{}, nil, nil, ""
			require.NoError(t, n.begin(i, s, time.Now()))
			all = append(all, n.facts(t, pass(ctx, s.All)))
		}
	})
	return all
}

// facts returns the observations of a step.
func (n *node) facts(t *testing.T, err error) judge.Facts {
	t.Helper()
	files, walked := n.files()
	require.NoError(t, walked)
	f := judge.Facts{"error": faults(err), "events": strings.Join(slices.Sorted(slices.Values(n.events)), ";"), "told": n.told}
	for object, calls := range n.calls {
		f[object+" calls"] = calls
	}
	for _, file := range files {
		f[shorten(file)] = "there"
	}
	return f
}

// shorten makes the name of a fact from a path.
func shorten(path string) string {
	for strings.Contains(path, "xxxx") {
		path = strings.ReplaceAll(path, "xxxx", "x")
	}
	if len(path) > 70 {
		path = path[:60] + "…" + path[len(path)-6:]
	}
	return path
}

const notReady = "not every pod source has been read"

// faults returns the faults that an error contains.
func faults(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(err.Error(), "read podLogsDirectory", "read pod logs")
	var found []string
	for _, fault := range faultNames() {
		if strings.Contains(text, fault) {
			found = append(found, fault)
		}
	}
	if len(found) == 0 {
		return text
	}
	return strings.Join(found, "; ")
}

// faultNames returns the texts that identify faults in errors.
func faultNames() []string {
	return []string{
		"fault:containers", "fault:sandboxes", "fault:status", "fault:stop", "fault:remove", "fault:box stop", "fault:box remove",
		"read pod logs", "read container logs", notReady,
	}
}
