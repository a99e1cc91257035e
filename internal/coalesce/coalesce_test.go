package coalesce_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reading calls f with a queue, and a function that reads from the
// queue.
func reading(t *testing.T, f func(q *coalesce.Queue[string, int], read func() (int, bool))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := coalesce.New[string](func(before, now int) int { return before + now })
		out, done := make(chan int), make(chan struct{})
		go func() {
			defer close(done)
			q.Pump(ctx, out)
		}()
		synctest.Wait()
		f(q, func() (int, bool) {
			synctest.Wait()
			select {
			case v := <-out:
				return v, true
			default:
				return 0, false
			}
		})
		cancel()
		<-done
	})
}

func TestQueue_MergesValuesAndKeepsKeyOrder(t *testing.T) {
	reading(t, func(q *coalesce.Queue[string, int], read func() (int, bool)) {
		q.Add("first", 1)
		synctest.Wait() // Pump has removed the value, so a later value of the same key is queued again
		for i := range 100 {
			q.Add("a", i)
			q.Add("b", 1)
		}
		q.Add("first", 5)
		var got []int
		for v, ok := read(); ok; v, ok = read() {
			got = append(got, v)
		}
		require.Equal(t, []int{1, 4950, 100, 5}, got)
	})
}

func TestPump_WakesUpForEachValue(t *testing.T) {
	reading(t, func(q *coalesce.Queue[string, int], read func() (int, bool)) {
		for i := range 10 {
			_, ok := read()
			require.False(t, ok)
			q.Add("a", i)
			v, ok := read()
			require.True(t, ok)
			require.Equal(t, i, v)
		}
	})
}

func TestPump_EndsWithoutAReader(t *testing.T) {
	reading(t, func(q *coalesce.Queue[string, int], _ func() (int, bool)) {
		q.Add("a", 1)
		q.Add("b", 1)
	})
}
