package podrunner

import (
	"context"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// slotTime is the longest that one start keeps others from beginning: what takes
// longer waits for something else than the processors, such as a pull, an address or
// a hook.
const slotTime = time.Second

// startsPerCPU keeps the processors busy without making all wait for all. From two to
// four for each, 50 pods on two processors take containerd the same time, as far as the
// machine's own noise lets one tell; when all 50 start at once, half of them run after
// 5 s instead of 3.
const startsPerCPU = 3

func defaultParallelStarts() int { return startsPerCPU * runtime.GOMAXPROCS(0) }

// slots are what starts of pods in the runtime take, one each.
type slots chan struct{}

// take waits for a slot. It is free again when the returned func is called, or after
// slotTime.
func (s slots) take(ctx context.Context, c clock.Clock) (giveBack func(), err error) {
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
