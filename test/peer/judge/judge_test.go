package judge_test

import (
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sum is a trivial peer: both sides add up numbers, and our side counts a number above 90
// twice.
func sum() judge.Peer[[]int] {
	play := func(twice int) func(*testing.T, []int) []judge.Facts {
		return func(_ *testing.T, numbers []int) (all []judge.Facts) {
			total := 0
			for _, n := range numbers {
				total += n
				if n > twice {
					total += n
				}
				all = append(all, judge.Facts{"total": strconv.Itoa(total)})
			}
			return all
		}
	}
	return judge.Peer[[]int]{
		Name: "sum",
		World: func(d *judge.Draw) (numbers []int) {
			for range d.Between(1, 8) {
				numbers = append(numbers, d.Int(100))
			}
			return numbers
		},
		Kubelet: play(100), Ours: play(90), Scenarios: 100,
		Rules: []judge.Rule[[]int]{{
			Name: "large numbers", Class: judge.Deliberate, Doc: "test/peer/judge/judge_test.go", Ends: true,
			Sentence: "The kubelet adds a number once; ours adds a number above 90 twice.",
			Explains: func(s judge.Scene[[]int]) bool {
				kubelet, _ := strconv.Atoi(s.Kubelet)
				ours, _ := strconv.Atoi(s.Ours)
				return s.World[s.Step] > 90 && ours == kubelet+s.World[s.Step]
			},
		}},
	}
}

func TestRun(t *testing.T) { judge.Run(t, sum()) }
