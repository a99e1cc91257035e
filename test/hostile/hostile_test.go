//go:build linux && hostile

package hostile

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// lengthVar is the time for which runs with new seeds are made.
	lengthVar = "HOSTILE_FOR"
	// seedVar is the seed of the first run.
	seedVar = "HOSTILE_SEED"
)

// shortPlan is the run of make hostile-short: all attacks for a short time.
func shortPlan() []phase {
	return []phase{
		{
			name: "failures, late answers, floods, foreign pods, deaths and kills", steps: 25, kills: true, harm: true,
			attack: attack{fail: 0.3, late: 0.1, flood: 2000, foreign: true},
		},
		{name: "lies", steps: 20, attack: attack{lie: 0.3, garbage: 0.05, hang: 0.01, flood: 1000}},
	}
}

// longPlan is one run of make hostile, with its phases in random order.
func longPlan(rng *rand.Rand) []phase {
	all := []phase{
		{name: "failures", attack: attack{fail: 0.3}},
		{name: "many failures", attack: attack{fail: 0.8}},
		{name: "hangs", attack: attack{hang: 0.03}},
		{name: "late answers", attack: attack{late: 0.5}},
		{name: "flood", attack: attack{flood: 200_000}},
		{name: "flood, cut off", attack: attack{flood: 20_000, fail: 0.1}, harm: true},
		{name: "foreign pods", attack: attack{foreign: true}},
		{name: "deaths", harm: true},
		{name: "kills", kills: true},
		{name: "kills and late answers", kills: true, attack: attack{late: 0.5}},
		{name: "kills, failures and deaths", kills: true, harm: true, attack: attack{fail: 0.2, hang: 0.01}},
		{name: "lies", attack: attack{lie: 0.2}},
		{name: "many lies", attack: attack{lie: 0.8}},
		{name: "lies and kills", kills: true, attack: attack{lie: 0.3, late: 0.1}},
		{name: "garbage", attack: attack{garbage: 0.2}},
		{name: "everything", kills: true, harm: true, attack: attack{fail: 0.1, hang: 0.01, late: 0.1, lie: 0.1, garbage: 0.05, flood: 20_000, foreign: true}},
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		all[i].steps, all[i].same = 80, rng.IntN(2) == 0
	}
	return all
}

func TestHostile(t *testing.T) {
	binary, err := buildAgent(t.TempDir())
	require.NoError(t, err)
	seed := uint64(1)
	if text := os.Getenv(seedVar); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	l := limits{
		livez: 5 * time.Second, begin: 30 * time.Second, recover: 2 * time.Minute, end: 30 * time.Second,
		use: use{memoryMiB: 500, descriptors: 500, goroutines: 3000}, many: 40, files: 20,
	}
	long := os.Getenv(lengthVar)
	if long == "" {
		play(t, &run{seed: seed, limits: l, binary: binary}, shortPlan())
		return
	}
	length, err := time.ParseDuration(long)
	require.NoError(t, err)
	l.livez, l.many = time.Second, 300
	for begin := time.Now(); time.Since(begin) < length; seed = rand.Uint64N(1_000_000) {
		if os.Getenv(seedVar) == "" && seed == 1 {
			seed = rand.Uint64N(1_000_000)
		}
		play(t, &run{seed: seed, limits: l, binary: binary}, longPlan(rand.New(rand.NewPCG(seed, 3))))
	}
}

// play executes a run in its own folder. Findings fail the test.
func play(t *testing.T, r *run, phases []phase) {
	t.Helper()
	r.dir = t.TempDir()
	require.NoError(t, r.play(t.Context(), phases))
	t.Log(r)
	require.Empty(t, r.found, "%s\nthe agent's last output:\n%s", strings.Join(r.found, "\n"), r.out.lines(60))
}
