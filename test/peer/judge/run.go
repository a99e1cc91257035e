package judge

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Run plays the scenarios of a peer and fails t on a difference that no rule explains. It
// also checks the peer's record: see the package documentation.
func Run[W any](t *testing.T, p Peer[W]) {
	t.Helper()
	p = p.chained()
	env := readEnvironment(t)
	if env.seed != nil {
		p.show(t, *env.seed)
		return
	}
	c := newCount(p)
	if env.mutant {
		p.play(t, env, c)
		p.checkRecord(t)
		return
	}
	if env.long > 0 {
		p.playLong(t, env.long)
		return
	}
	began := time.Now()
	p.play(t, env, c)
	p.playFresh(t, env, c)
	t.Log(c.line(p.Name, time.Since(began)))
	c.report(t)
	if env.record {
		p.writeRecord(t, c)
	} else if !t.Failed() && !env.survey {
		p.checkRecord(t)
	}
}

// An environment is the values of the PEER_ variables.
type environment struct {
	seed           *uint64
	from, n, long  uint64
	fresh          time.Duration
	survey, record bool
	mutant         bool
}

func readEnvironment(t *testing.T) (env environment) {
	t.Helper()
	number := func(name string) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return 0
		}
		v, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "%s is not a number", name)
		return v
	}
	if os.Getenv("PEER_SEED") != "" {
		env.seed = new(number("PEER_SEED"))
	}
	env.from, env.n, env.long = max(number("PEER_FROM"), 1), number("PEER_N"), number("PEER_LONG")
	if text := os.Getenv("PEER_FRESH"); text != "" {
		var err error
		env.fresh, err = time.ParseDuration(text)
		require.NoError(t, err, "PEER_FRESH is not a duration")
	}
	env.survey, env.record = os.Getenv("PEER_SURVEY") != "", os.Getenv("PEER_RECORD") != ""
	env.mutant = os.Getenv("PEER_MUTANT") != ""
	return env
}

// play plays the fixed seeds.
func (p Peer[W]) play(t *testing.T, env environment, c *count) {
	t.Helper()
	last := env.n
	if last == 0 {
		last = uint64(p.Scenarios)
	}
	for seed := env.from; seed <= last && !t.Failed(); seed++ {
		if env.mutant || env.survey {
			p.judge(t, seed, c, env.survey)
		} else {
			p.playTwice(t, seed, env, c)
		}
	}
}

// playFresh plays random seeds for a while, out of the seeds that the last long run has
// played. In this way, a change of our code that breaks one of these seeds is found sooner or
// later. Only a long run plays new seeds, so that a build never fails because of a scenario
// that was never played before.
func (p Peer[W]) playFresh(t *testing.T, env environment, c *count) {
	t.Helper()
	r, err := ReadRecord(recordPath(p.Name))
	require.NoError(t, err)
	for began := time.Now(); time.Since(began) < env.fresh && !t.Failed(); {
		seed := 1 + rand.Uint64N(max(uint64(r.Scenarios), uint64(p.Scenarios)))
		p.playTwice(t, seed, env, c)
	}
}

// playTwice plays a seed. Some scenarios depend on the order of goroutines. Therefore playTwice plays a
// seed with a difference that no rule explains again, and fails t only if the difference remains.
func (p Peer[W]) playTwice(t *testing.T, seed uint64, env environment, c *count) {
	t.Helper()
	once := func() trial[W] { return p.try(t, func() *Draw { return newDraw(seed) }) }
	tr := once()
	if d, found := tr.unexplained(); found {
		t.Logf("seed %d differed once, by chance or because of a race: step %d, %s: kubelet %q, ours %q", seed, d.step, d.fact, d.kubelet, d.ours)
		tr = once()
	}
	if _, found := tr.unexplained(); found {
		p.judge(t, seed, c, env.survey)
		return
	}
	countTrial(c, seed, tr)
}

// judge plays one seed. Unless survey is set, it fails t on an unexplained difference.
func (p Peer[W]) judge(t *testing.T, seed uint64, c *count, survey bool) {
	t.Helper()
	draw := newDraw(seed)
	tr := p.try(t, func() *Draw { draw = newDraw(seed); return draw })
	countTrial(c, seed, tr)
	d, found := tr.unexplained()
	if !found || survey {
		return
	}
	if os.Getenv("PEER_MUTANT") != "" {
		t.Fatalf("found: step %d, %s: kubelet %q, ours %q", d.step, d.fact, d.kubelet, d.ours)
	}
	choices := p.reduce(t, draw.made, d.kind())
	small := p.try(t, func() *Draw { return replay(choices) })
	t.Errorf("no rule explains a difference; to repeat it: PEER_SEED=%d\nthe smallest scenario with this difference:\n%s", seed, small.text(p.Rules))
}

// show prints one scenario without reducing it.
func (p Peer[W]) show(t *testing.T, seed uint64) {
	t.Helper()
	tr := p.try(t, func() *Draw { return newDraw(seed) })
	t.Log("\n" + tr.text(p.Rules))
	for step := range tr.compared {
		kubelet, ours := at(tr.kubelet, step), at(tr.ours, step)
		for _, fact := range names(kubelet, ours) {
			mark := " "
			if kubelet[fact] != ours[fact] {
				mark = "!"
			}
			t.Logf("%s step %d  %s\n    kubelet %s\n    ours    %s", mark, step, fact, kubelet[fact], ours[fact])
		}
	}
	if _, found := tr.unexplained(); found {
		t.Error("no rule explains a difference")
	}
}

// text prints a scenario: the world, and each difference with its rule.
func (tr trial[W]) text(rules []Rule[W]) string {
	var b strings.Builder
	fmt.Fprintln(&b, describe(tr.world))
	for _, d := range tr.differences {
		rule := "NO RULE"
		if d.rule >= 0 {
			rule = rules[d.rule].Name
		}
		fmt.Fprintf(&b, "step %d, %s (%s)\n    kubelet %s\n    ours    %s\n", d.step, d.fact, rule, d.kubelet, d.ours)
	}
	return b.String()
}

// describe prints a world: by its String method, or as JSON.
func describe(world any) string {
	if s, ok := world.(fmt.Stringer); ok {
		return s.String()
	}
	text, err := json.MarshalIndent(world, "", "  ")
	if err != nil {
		return fmt.Sprintf("%+v", world)
	}
	return string(text)
}

// A count is the statistics of a run.
type count struct {
	scenarios, steps, facts int
	rules                   []seen
	kinds                   map[string]*seen // unexplained differences
}

// seen is how often something occurred, and its first occurrence.
type seen struct {
	differences int
	seed        uint64
	example     difference
}

func (s *seen) add(seed uint64, d difference) {
	if s.differences == 0 {
		s.seed, s.example = seed, d
	}
	s.differences++
}

func newCount[W any](p Peer[W]) *count {
	return &count{rules: make([]seen, len(p.Rules)), kinds: map[string]*seen{}}
}

func countTrial[W any](c *count, seed uint64, tr trial[W]) {
	c.scenarios++
	c.steps += tr.compared
	c.facts += tr.facts
	for _, d := range tr.differences {
		if d.rule >= 0 {
			c.rules[d.rule].add(seed, d)
			continue
		}
		k := c.kinds[d.kind()]
		if k == nil {
			k = &seen{}
			c.kinds[d.kind()] = k
		}
		k.add(seed, d)
	}
}

// line returns a summary of a run in one line.
func (c *count) line(name string, took time.Duration) string {
	explained := 0
	for _, r := range c.rules {
		explained += r.differences
	}
	return fmt.Sprintf("%s: %d scenarios, %d steps, %d facts compared, %d differences explained by rules, in %s",
		name, c.scenarios, c.steps, c.facts, explained, took.Round(time.Millisecond))
}

// report fails t with the kinds of unexplained differences that a survey found.
func (c *count) report(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	for _, kind := range slices.SortedFunc(maps.Keys(c.kinds), func(a, b string) int {
		return c.kinds[b].differences - c.kinds[a].differences
	}) {
		k := c.kinds[kind]
		t.Errorf("%d differences without a rule: %s; first with PEER_SEED=%d, step %d:\n    kubelet %s\n    ours    %s",
			k.differences, kind, k.seed, k.example.step, k.example.kubelet, k.example.ours)
	}
}
