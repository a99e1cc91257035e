package eviction

import (
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// rounds returns the collections of a side, grouped by those that ran concurrently.
func rounds(f judge.Facts) (all [][]string) {
	for word := range strings.FieldsSeq(f["collections"]) {
		all = append(all, strings.Split(word, "+"))
	}
	return all
}

// took returns the duration of collections that run concurrently.
func (w *world) took(round []string) (d time.Duration) {
	for _, a := range round {
		d = max(d, w.collector(a).Took)
	}
	return d
}

// nextCollection returns the next collection of our manager for a threshold, if any.
func (st *step) nextCollection(t threshold, m *memory, ended map[string]time.Duration, now time.Duration) string {
	actions := st.actions(t.Signal)
	if len(actions) == 0 {
		return ""
	}
	latest, any := time.Duration(0), false
	for _, a := range actions {
		if e, ok := ended[a]; ok {
			latest, any = max(latest, e), true
		}
	}
	if !any || now-latest >= 10*time.Second && (!m.wasDue[t] || m.hadFigureAfter(t.Signal, latest, st.m.began)) {
		return actions[0]
	}
	if len(actions) == 2 {
		containers, wasContainers := ended[actions[0]]
		images, wasImages := ended[actions[1]]
		if wasContainers && (!wasImages || images < containers) {
			return actions[1]
		}
	}
	return ""
}

// hadFigureAfter reports whether the last look but one had a figure that was measured after a
// time.
func (m *memory) hadFigureAfter(s eviction.Signal, at time.Duration, began time.Time) bool {
	if last := m.observedBefore[s]; !last.IsZero() {
		return last.Sub(began) > at
	}
	return m.evaluatedBefore > at
}

// collectionsEnded returns when our last collections of each kind ended before this step.
func (st *step) collectionsEnded(withThis bool) map[string]time.Duration {
	ended := map[string]time.Duration{}
	all := st.before
	if withThis {
		all = append(slices.Clone(all), st.ours)
	}
	for i, f := range all {
		if st.w.Notes[i].Restarted {
			clear(ended)
		}
		at := st.w.Notes[i].At
		for _, round := range rounds(f) {
			for _, a := range round {
				ended[a] = at + st.w.collector(a).Took
			}
			at += st.w.took(round)
		}
	}
	if st.note().Restarted && !withThis {
		clear(ended)
	}
	return ended
}
