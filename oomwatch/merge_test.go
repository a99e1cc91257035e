package oomwatch

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestMerger passes kills of the log and the counters to a merger and prints the results. A
// line is one of
//
//	log CGROUP PID            a kill in the log; a dash is a missing cgroup
//	log CGROUP PID group N    a group kill of N
//	count CGROUP N [group]    a counter that rose
//	wait DURATION
//
// The log is read when it is written, and counters each second. "from TIME" at the end of a
// line sets when the log was written, or the counter was last read. The window is 3 s.
func TestMerger(t *testing.T) {
	datadriven.Walk(t, "testdata/merge", func(t *testing.T, path string) {
		t.Helper()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			require.Equal(t, "merge", d.Cmd)
			p := play{T: t, merger: merger{window: 3 * time.Second}}
			for line := range strings.SplitSeq(d.Input, "\n") {
				p.line(strings.Fields(line))
			}
			return p.out.String()
		})
	})
}

type play struct {
	*testing.T
	merger

	now time.Duration
	out strings.Builder
}

func (p *play) line(words []string) {
	p.Helper()
	from := p.now
	if words[0] == "count" {
		from -= time.Second
	}
	if at := len(words) - 2; words[max(at, 0)] == "from" {
		var err error
		from, err = time.ParseDuration(words[at+1])
		require.NoError(p, err)
		words = words[:at]
	}
	switch words[0] {
	case "log":
		k := Kill{Kind: Cgroup, VictimCgroup: strings.TrimPrefix(words[1], "-"), Victim: Victim{PID: p.number(words[2])}, Kills: 1, Time: time.Unix(0, 0).Add(from)}
		if len(words) > 3 {
			k.Kind, k.Kills = Group, p.number(words[4])
			k.counted = k.Kills + 1
		}
		p.add(Observation{Kill: k}, p.time())
		p.show(p.due(p.time()))
	case "count":
		k := Kill{VictimCgroup: words[1], Kills: p.number(words[2]), Time: p.time()}
		if len(words) > 3 {
			k.Kind, k.counted = Group, k.Kills
			k.Kills--
		}
		p.add(Observation{Kill: k, Counter: true, Since: time.Unix(0, 0).Add(from)}, p.time())
		p.show(p.due(p.time()))
	case "wait":
		d, err := time.ParseDuration(words[1])
		require.NoError(p, err)
		end := p.now + d
		for at := p.next(); !at.IsZero() && !at.After(time.Unix(0, 0).Add(end)); at = p.next() {
			p.now = at.Sub(time.Unix(0, 0))
			p.show(p.due(at))
		}
		p.now = end
		p.show(p.due(p.time()))
	default:
		require.Fail(p, "unknown word: "+words[0])
	}
}

func (p *play) number(word string) int {
	p.Helper()
	n, err := strconv.Atoi(word)
	require.NoError(p, err)
	return n
}

func (p *play) time() time.Time { return time.Unix(0, 0).Add(p.now) }

func (p *play) show(kills []Kill) {
	for _, k := range kills {
		fmt.Fprintf(&p.out, "%s: %s\n", p.now, k.String())
	}
}
