package judge

import "math/rand/v2"

// A Draw makes the choices of one scenario. The same seed gives the same choices. A Draw
// records its choices, so that a scenario can be reduced by editing them: the simplest value
// of each choice is 0, and a reduced scenario has more zeros. Use a Draw for every choice, in
// an order that depends on earlier choices only. It is not safe for concurrent use.
type Draw struct {
	random *rand.PCG
	given  []uint64 // choices to repeat; all further choices are 0
	made   []uint64
}

func newDraw(seed uint64) *Draw { return &Draw{random: rand.NewPCG(seed, 0)} }

func replay(choices []uint64) *Draw { return &Draw{given: choices} }

// Int returns a number from 0 to n-1. It returns 0 for n below 2.
func (d *Draw) Int(n int) int {
	var v uint64
	switch {
	case d.random != nil:
		v = d.random.Uint64()
	case len(d.made) < len(d.given):
		v = d.given[len(d.made)]
	}
	if n < 2 {
		v = 0
	} else {
		v %= uint64(n)
	}
	d.made = append(d.made, v)
	return int(v)
}

// Between returns a number from low to high. The simplest is low.
func (d *Draw) Between(low, high int) int { return low + d.Int(high-low+1) }

// Chance returns true in the given percentage of cases. The simplest value is false.
func (d *Draw) Chance(percent int) bool { return d.Int(100) >= 100-percent }

// Pick returns one of the choices. The first is the simplest.
func Pick[T any](d *Draw, choices ...T) T { return choices[d.Int(len(choices))] }

// Maybe returns a pointer to the result of draw in the given percentage of cases, otherwise
// nil.
func Maybe[T any](d *Draw, percent int, draw func() T) *T {
	if !d.Chance(percent) {
		return nil
	}
	v := draw()
	return &v
}

// Shuffle randomizes the order of a slice.
func Shuffle[T any](d *Draw, s []T) {
	for i := range s {
		j := i + d.Int(len(s)-i)
		s[i], s[j] = s[j], s[i]
	}
}
