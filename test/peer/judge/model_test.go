package judge

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestModel_Cause checks which of several traits is the cause of a difference.
func TestModel_Cause(t *testing.T) {
	const a, b, c Traits = 1, 2, 4
	plays := 0
	m := Model{All: a | b | c, Order: []Traits{a, b, c}, Play: func(t Traits) []Facts {
		plays++
		f := Facts{"alone": "no", "both": "no", "either": "no"}
		if t.Has(b) {
			f["alone"] = "yes"
		}
		if t.Has(a | c) {
			f["both"] = "yes"
		}
		if t&(b|c) != 0 {
			f["either"] = "yes"
		}
		f["pairs"] = strings.Repeat("x", map[bool]int{true: 1}[t.Has(a|b) || t.Has(b|c) || t.Has(a|c)])
		return []Facts{f}
	}}
	causes := func(fact, theirs, ours string) (all []Traits) {
		for _, t := range m.Order {
			if m.Explains(0, fact, theirs, ours, t) {
				all = append(all, t)
			}
		}
		return all
	}
	require.Equal(t, []Traits{b}, causes("alone", "no", "yes"))
	require.Equal(t, []Traits{a}, causes("both", "no", "yes"), "our side without a has another value")
	require.Equal(t, []Traits{b}, causes("either", "no", "yes"), "the kubelet's side with b has another value")
	require.Equal(t, []Traits{b}, causes("pairs", "", "x"), "of a, b and c in turn, b is the last that changes the value")
	require.Empty(t, causes("alone", "no", "maybe"), "no side has this value")
	require.Nil(t, m.Facts(1, 0), "the world has one step")
	require.Equal(t, 8, plays, "each set of traits is played once")
}
