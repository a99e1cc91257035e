package judge

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Record is the content of testdata/NAME.json for a peer: its rules with their seeds, and
// the figures of the last long run.
type Record struct {
	Name string
	// Generator is a checksum of the choices of the first seeds. The figures are only valid
	// for the generator with this checksum.
	Generator uint32
	// Scenarios, Steps and Facts count the comparisons of the long run, over the seeds from 1
	// to Scenarios.
	Scenarios, Steps, Facts int
	Rules                   []RecordedRule
}

// A RecordedRule is a rule, a seed on which it fires, and the first difference that it
// explains with this seed.
type RecordedRule struct {
	Name          string
	Class         Class
	Sentence      string
	Doc           string `json:",omitempty"`
	Seed          uint64
	Fact          string
	Kubelet, Ours string
	Differences   int // in the long run
}

// searchFor is how long a run with PEER_RECORD plays more seeds if some rules have not fired
// yet.
const searchFor = 5 * time.Minute

func recordPath(name string) string {
	return filepath.Join("testdata", strings.ReplaceAll(name, "/", "-")+".json")
}

// ReadRecord reads a record. If the file does not exist, the record is empty.
func ReadRecord(path string) (r Record, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	return r, json.Unmarshal(data, &r)
}

func (r Record) write(t *testing.T) {
	t.Helper()
	data, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	path := recordPath(r.Name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// The file is replaced atomically, because a long run can be stopped at any time.
	require.NoError(t, os.WriteFile(path+".new", append(data, '\n'), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
}

// rule returns the recorded rule with a name.
func (r Record) rule(name string) RecordedRule {
	for _, rule := range r.Rules {
		if rule.Name == name {
			return rule
		}
	}
	return RecordedRule{}
}

// recorded returns a rule for a record, with a seed on which it fires: the previously
// recorded seed if the rule still fires on it, otherwise the first one of this run.
func (p Peer[W]) recorded(t *testing.T, i int, old Record, s seen) RecordedRule {
	t.Helper()
	r := p.Rules[i]
	before := old.rule(r.Name)
	now := RecordedRule{
		Name: r.Name, Class: r.Class, Sentence: r.Sentence, Doc: r.Doc,
		Seed: before.Seed,
	}
	if old.Generator == p.generator() {
		now.Differences = before.Differences
	}
	d, fires := p.firesOn(t, i, now.Seed)
	if !fires && s.differences > 0 {
		now.Seed, d, fires = s.seed, s.example, true
	}
	if !fires {
		t.Errorf("rule %q fires on none of the seeds played", r.Name)
	}
	now.Fact, now.Kubelet, now.Ours = d.fact, clip(d.kubelet), clip(d.ours)
	return now
}

// generator returns a checksum of the choices that World makes for the first seeds.
func (p Peer[W]) generator() uint32 {
	sum := fnv.New32a()
	for seed := range uint64(50) {
		d := newDraw(seed + 1)
		p.World(d)
		fmt.Fprintln(sum, d.made)
	}
	return sum.Sum32()
}

// clip shortens a value for the tables on the page.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// chances is how often a seed is played until a rule about an arbitrary order fires: the
// kubelet may produce our order by chance.
const chances = 200

// firesOn returns the first difference that rule i explains with a seed.
func (p Peer[W]) firesOn(t *testing.T, i int, seed uint64) (difference, bool) {
	t.Helper()
	if seed == 0 {
		return difference{}, false
	}
	plays := 1
	if p.Rules[i].Class == ArbitraryOrder {
		plays = chances
	}
	for range plays {
		for _, d := range p.try(t, func() *Draw { return newDraw(seed) }).differences {
			if d.rule == i {
				return d, true
			}
		}
	}
	return difference{}, false
}

// writeRecord writes the record after a run, with the figures of the last long run.
func (p Peer[W]) writeRecord(t *testing.T, c *count) {
	t.Helper()
	old, err := ReadRecord(recordPath(p.Name))
	require.NoError(t, err)
	p.search(t, old, c)
	now := Record{Name: p.Name, Generator: p.generator()}
	if now.Generator == old.Generator {
		now.Scenarios, now.Steps, now.Facts = old.Scenarios, old.Steps, old.Facts
	}
	for i := range p.Rules {
		now.Rules = append(now.Rules, p.recorded(t, i, old, c.rules[i]))
	}
	now.write(t)
}

// search plays more seeds until each rule has fired.
func (p Peer[W]) search(t *testing.T, old Record, c *count) {
	t.Helper()
	seed := uint64(c.scenarios)
	for began := time.Now(); time.Since(began) < searchFor; {
		silent := 0
		for i, r := range p.Rules {
			if c.rules[i].differences == 0 {
				if _, fires := p.firesOn(t, i, old.rule(r.Name).Seed); !fires {
					silent++
				}
			}
		}
		if silent == 0 {
			return
		}
		for range 1000 {
			seed++
			countTrial(c, seed, p.try(t, func() *Draw { return newDraw(seed) }))
		}
	}
}

// checkRecord checks that the record has the rules of the code, that each rule fires on its
// seed, and that its sentence is in the documentation.
func (p Peer[W]) checkRecord(t *testing.T) {
	t.Helper()
	r, err := ReadRecord(recordPath(p.Name))
	require.NoError(t, err)
	require.Len(t, r.Rules, len(p.Rules), "the rules in the record and in the code differ: run make peer-record")
	require.Equal(t, p.generator(), r.Generator, "the record belongs to another generator of worlds: run make peer-record")
	for i, rule := range p.Rules {
		have := r.Rules[i]
		want := RecordedRule{Name: rule.Name, Class: rule.Class, Sentence: rule.Sentence, Doc: rule.Doc}
		have.Seed, have.Fact, have.Kubelet, have.Ours, have.Differences = 0, "", "", "", 0
		require.Equal(t, want, have, "the record differs from the code: run make peer-record")
		if _, fires := p.firesOn(t, i, r.Rules[i].Seed); !fires {
			t.Errorf("rule %q no longer fires on its seed %d: run make peer-record, or delete the rule", rule.Name, r.Rules[i].Seed)
		}
		checkSentence(t, rule.Name, have)
	}
}

// checkSentence checks that the documentation contains a rule's sentence.
func checkSentence(t *testing.T, name string, r RecordedRule) {
	t.Helper()
	require.Contains(t, []Class{Deliberate, KubeletDefect, ArbitraryOrder}, r.Class, "rule %q", name)
	data, err := os.ReadFile(filepath.Join(moduleRoot(t), r.Doc))
	require.NoError(t, err, "rule %q", name)
	require.NotEmpty(t, r.Sentence, "rule %q", name)
	if !strings.Contains(words(string(data)), words(r.Sentence)) {
		t.Errorf("the sentence of rule %q is missing in %s: %s", name, r.Doc, r.Sentence)
	}
}

// words returns text without comment markers and line breaks.
func words(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		all = append(all, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "//"))...)
	}
	return strings.Join(all, " ")
}

// moduleRoot returns the directory of the root module, the parent of test/peer.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for filepath.Base(dir) != "peer" || filepath.Base(filepath.Dir(dir)) != "test" {
		require.NotEqual(t, dir, filepath.Dir(dir), "the working directory is not below test/peer")
		dir = filepath.Dir(dir)
	}
	return filepath.Dir(filepath.Dir(dir))
}

// playLong plays the seeds from 1 to last. It writes the figures into the record after each
// thousand seeds, so that the run can be stopped and continued.
func (p Peer[W]) playLong(t *testing.T, last uint64) {
	t.Helper()
	began := time.Now()
	r, err := ReadRecord(recordPath(p.Name))
	require.NoError(t, err)
	require.Len(t, r.Rules, len(p.Rules), "the rules in the record and in the code differ: run make peer-record")
	require.Equal(t, p.generator(), r.Generator, "the record belongs to another generator of worlds: run make peer-record")
	for uint64(r.Scenarios) < last && !t.Failed() {
		c := newCount(p)
		for range min(1000, last-uint64(r.Scenarios)) {
			p.judge(t, uint64(r.Scenarios+c.scenarios+1), c, false)
			if t.Failed() {
				return
			}
		}
		r.Scenarios, r.Steps, r.Facts = r.Scenarios+c.scenarios, r.Steps+c.steps, r.Facts+c.facts
		for i := range c.rules {
			r.Rules[i].Differences += c.rules[i].differences
		}
		r.write(t)
	}
	t.Logf("%s: compared %d scenarios, %d steps, %d facts so far; this run took %s", p.Name, r.Scenarios, r.Steps, r.Facts, time.Since(began).Round(time.Second))
}
