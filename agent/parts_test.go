package agent

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// record records the actions of parts, in order.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// part returns a part that records when it is started and stopped.
func (r *record) part(name string) part {
	return part{name, func(ctx context.Context) error {
		r.add("start " + name)
		<-ctx.Done()
		r.add("stop " + name)
		return nil
	}}
}

func TestRun_StopsInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log record
		one, two := log.part("one"), log.part("two")
		done := make(chan error, 1)
		go func() { done <- run(ctx, one, two) }()
		synctest.Wait()
		require.ElementsMatch(t, []string{"start one", "start two"}, log.lines)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []string{"stop two", "stop one"}, log.lines[2:])
	})
}

func TestRun_ReturnsErrorOfFailedPart(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name string
		end  error
		want string
	}{
		{"with an error", broken, "agent: two: broken"},
		{"without one", nil, "agent: two returned before it was stopped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log record
				err := run(t.Context(), log.part("one"), part{"two", func(context.Context) error { return tc.end }})
				require.EqualError(t, err, tc.want)
				require.Equal(t, []string{"start one", "stop one"}, log.lines)
			})
		})
	}
}

func TestRun_ReturnsErrorOfStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- run(ctx, part{"one", func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("could not save")
			}})
		}()
		cancel()
		require.EqualError(t, <-done, "agent: one: could not save")
	})
}
