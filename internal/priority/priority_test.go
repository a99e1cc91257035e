package priority_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/priority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type item struct{ due, place int }

func newQueue() priority.Queue[item] {
	return priority.Queue[item]{
		Before: func(a, b *item) bool { return a.due < b.due },
		Place:  func(i *item) *int { return &i.place },
	}
}

func TestQueue_StaysSorted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		q := newQueue()
		items := make([]*item, 20)
		for i := range items {
			items[i] = new(item)
		}
		in := map[*item]bool{}
		for range 200 {
			i := items[r.IntN(len(items))]
			if r.IntN(3) == 0 {
				q.Remove(i)
				delete(in, i)
			} else {
				i.due = r.IntN(50)
				q.Put(i)
				in[i] = true
			}
			require.Equal(t, len(in), q.Len())
			require.Equal(t, in[i], i.place != 0)
			var first *item
			for other := range in {
				if first == nil || other.due < first.due {
					first = other
				}
			}
			if first == nil {
				require.Nil(t, q.First())
				continue
			}
			require.Equal(t, first.due, q.First().due)
		}
		require.ElementsMatch(t, slices.Collect(q.All()), slices.DeleteFunc(items, func(i *item) bool { return !in[i] }))
		last := -1
		for q.Len() > 0 {
			first := q.First()
			q.Remove(first)
			require.GreaterOrEqual(t, first.due, last)
			last = first.due
		}
	}
}

func TestQueue_IgnoresItemsOfAnotherQueue(t *testing.T) {
	t.Parallel()
	one, two := newQueue(), newQueue()
	a, b := &item{due: 1}, &item{due: 2}
	one.Put(a)
	two.Put(b)
	one.Remove(b)
	two.Remove(a)
	require.Same(t, a, one.First())
	require.Same(t, b, two.First())
}
