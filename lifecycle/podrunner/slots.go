package podrunner

import (
	"context"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// slotTime is how long a start can occupy a slot. A start that takes longer
// usually waits for something other than a processor, such as a pull, an
// address or a hook.
const slotTime = time.Second

// startsPerCPU limits the starts per processor. In measurements with 50 pods on
// two processors, containerd took the same time with two to four starts per
// processor. When all 50 pods started at the same time, half of them ran after
// 5 s instead of 3 s.
const startsPerCPU = 3

func defaultParallelStarts() int { return startsPerCPU * runtime.GOMAXPROCS(0) }

// slots limits the concurrent starts of pods in the runtime.
type slots chan struct{}

// acquire waits for a slot. The slot is released when the returned function is
// called, or after slotTime.
func (s slots) acquire(ctx context.Context, c clock.Clock) (release func(), err error) {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	done := make(chan struct{})
	var holder sync.WaitGroup
	holder.Go(func() {
		timer := c.NewTimer(slotTime)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-done:
		}
		<-s
	})
	return func() {
		close(done)
		holder.Wait()
	}, nil
}
