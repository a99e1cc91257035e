package podworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrShutdownCancelled is the cause of the ctx of a shutdown that the machine has
// called off.
var ErrShutdownCancelled = errors.New("the shutdown of the machine was called off")

// Inhibitor holds up the shutdown of the machine. systemd-logind does, with a delay
// inhibitor lock; there is no implementation here. The methods are called by two
// goroutines at most.
type Inhibitor interface {
	// Inhibit has the next shutdown held up for as long as need until release is
	// called. Allowed is how long the machine is ready to wait, which may be less; 0
	// is not at all.
	Inhibit(ctx context.Context, need time.Duration) (allowed time.Duration, release func(), err error)
	// AwaitShutdown returns nil when the machine is about to shut down.
	AwaitShutdown(ctx context.Context) error
	// AwaitCancel returns nil when the machine has called the shutdown off.
	AwaitCancel(ctx context.Context) error
}

// HoldShutdown holds up each shutdown of the machine until shutDown has returned.
// That gets what the machine allows, for [PlanShutdown], and a ctx that ends when the
// shutdown is called off ([ErrShutdownCancelled]): the kubelet notices that only
// after it has killed all pods. Of o it uses Events and Node, for the event of a
// shutdown that was called off. HoldShutdown returns nil when ctx is done, and an error
// if the Inhibitor fails or the machine does not wait: try again later then.
func HoldShutdown(
	ctx context.Context, in Inhibitor, need time.Duration, o ShutdownOptions, shutDown func(ctx context.Context, allowed time.Duration),
) error {
	for ctx.Err() == nil {
		if err := holdOne(ctx, in, need, shutDown); err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() == nil {
			o.event(MessageShutdownCancelled)
		}
	}
	return nil
}

// holdOne holds up the next shutdown, and returns when that was called off.
func holdOne(ctx context.Context, in Inhibitor, need time.Duration, shutDown func(context.Context, time.Duration)) error {
	allowed, release, err := in.Inhibit(ctx, need)
	if err != nil {
		return fmt.Errorf("inhibit the shutdown of the machine: %w", err)
	}
	if release == nil {
		release = func() {}
	}
	release = sync.OnceFunc(release)
	defer release()
	if allowed <= 0 && need > 0 {
		return fmt.Errorf("inhibit the shutdown of the machine: it does not wait; %v are needed", need)
	}
	if err := in.AwaitShutdown(ctx); err != nil {
		return fmt.Errorf("wait for a shutdown of the machine: %w", err)
	}
	shutdown, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	called := make(chan error, 1)
	go func() {
		err := in.AwaitCancel(shutdown)
		if err == nil {
			cancel(ErrShutdownCancelled)
		}
		called <- err
	}()
	shutDown(shutdown, allowed)
	release()
	if err := <-called; err != nil {
		return fmt.Errorf("wait whether the shutdown of the machine is called off: %w", err)
	}
	return nil
}
