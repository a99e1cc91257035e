package oomwatch

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// The budget of the events about a pod. Events are seconds or about a minute apart. No such
// distance is near a multiple of every, so small delays do not change the result.
const (
	burst = 2
	every = 50 * time.Second
)

// limited is a reporter with a budget, and a model of it that is driven by a reporter without
// one. Only the handler calls both.
type limited struct {
	t        *testing.T
	reporter *oomwatch.Reporter
	wrong    string // result for an invalid configuration

	counts                   bool // the reporter counts suppressed events
	made, suppressed         int
	wantMade, wantSuppressed int
	back                     []time.Time // when each recorded event no longer counts
}

func newLimited(o *ours) *limited {
	_, err := oomwatch.NewReporter(oomwatch.ReporterConfig{Burst: -1, Every: -1})
	require.Error(o.t, err)
	l := &limited{t: o.t, wrong: err.Error()}
	cfg := oomwatch.ReporterConfig{
		Events: &recorder{func(about, _ string) {
			if about == "pod event" {
				l.made++
			}
		}},
		Node: &corev1.ObjectReference{Kind: "Node", Name: "node"}, Pod: o.pod, Burst: burst, Every: every,
	}
	if o.w.Counts {
		l.counts, cfg.Suppressed = true, func(oomwatch.Kill) { l.suppressed++ }
	}
	l.reporter, err = oomwatch.NewReporter(cfg)
	require.NoError(o.t, err)
	return l
}

// expect records that an event is due, if the budget permits it.
func (l *limited) expect() {
	now := time.Now()
	l.back = slices.DeleteFunc(l.back, func(at time.Time) bool { return !at.After(now) })
	if len(l.back) == burst {
		l.wantSuppressed++
		return
	}
	from := now
	if len(l.back) > 0 {
		from = l.back[len(l.back)-1]
	}
	l.wantMade, l.back = l.wantMade+1, append(l.back, from.Add(every))
}

// check compares the recorded and suppressed events with the expected ones.
func (l *limited) check() {
	require.Equal(l.t, l.wantMade, l.made)
	if l.counts {
		require.Equal(l.t, l.wantSuppressed, l.suppressed)
	}
}
