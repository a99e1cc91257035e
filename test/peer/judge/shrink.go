package judge

import (
	"regexp"
	"slices"
	"testing"
)

// shrinkAttempts is the maximum number of scenarios that a reduction plays.
const shrinkAttempts = 3000

// kind returns the kind of a difference: the name of its fact without numbers.
func (d difference) kind() string {
	return regexp.MustCompile(`[0-9]+`).ReplaceAllString(d.fact, "#")
}

// reduce returns the simplest choices it finds that still lead to an unexplained difference
// of the same kind.
func (p Peer[W]) reduce(t *testing.T, choices []uint64, kind string) []uint64 {
	t.Helper()
	attempts := 0
	fails := func(c []uint64) bool {
		if attempts++; attempts > shrinkAttempts {
			return false
		}
		d, found := p.try(t, func() *Draw { return replay(c) }).unexplained()
		return found && d.kind() == kind
	}
	for attempts < shrinkAttempts {
		simpler := lower(dropBlocks(choices, fails), fails)
		if slices.Equal(simpler, choices) {
			break
		}
		choices = simpler
	}
	return choices
}

// dropBlocks removes blocks of choices, long blocks first, as long as fails holds.
func dropBlocks(choices []uint64, fails func([]uint64) bool) []uint64 {
	for size := len(choices) / 2; size > 0; size /= 2 {
		for from := len(choices) - size; from >= 0; from = min(from, len(choices)) - size {
			shorter := slices.Delete(slices.Clone(choices), from, from+size)
			if fails(shorter) {
				choices = shorter
			}
		}
	}
	return choices
}

// lower replaces choices with simpler ones, as long as fails holds.
func lower(choices []uint64, fails func([]uint64) bool) []uint64 {
	for i := range choices {
		for _, v := range []uint64{0, choices[i] / 2, choices[i] - 1} {
			if choices[i] == 0 || v >= choices[i] {
				continue
			}
			simpler := slices.Clone(choices)
			simpler[i] = v
			if fails(simpler) {
				choices = simpler
			}
		}
	}
	return choices
}
