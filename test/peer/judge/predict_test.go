package judge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPeer_PredictionThatNeitherSideHas checks that a fact which only the last prediction has
// is a difference.
func TestPeer_PredictionThatNeitherSideHas(t *testing.T) {
	p := Peer[int]{
		World:   func(d *Draw) int { return d.Int(2) },
		Kubelet: func(*testing.T, int) []Facts { return []Facts{{"kept": "yes"}} },
		Ours:    func(*testing.T, int) []Facts { return []Facts{{"kept": "yes"}} },
		Rules:   []Rule[int]{{Name: "removal"}},
		Predict: func(Scene[int]) []Prediction {
			return []Prediction{{Facts: Facts{"kept": "yes"}, By: -1}, {Facts: Facts{"kept": "yes", "removed": "yes"}, By: 0}}
		},
	}
	d, found := p.chained().try(t, func() *Draw { return newDraw(1) }).unexplained()
	require.True(t, found)
	require.Equal(t, difference{fact: "removed", ours: ` (the rules expect "yes")`, rule: -1}, d)
}
