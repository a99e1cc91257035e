package podworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrShutdownCancelled is the cause of the ctx of a shutdown after the machine
// has cancelled the shutdown.
var ErrShutdownCancelled = errors.New("the shutdown of the machine was cancelled")

// Inhibitor delays the shutdown of the machine, for example with a delay
// inhibitor lock of systemd-logind. This package has no implementation. At most
// two goroutines call the methods at the same time.
type Inhibitor interface {
	// Inhibit delays the next shutdown until release is called. need is the
	// longest delay that the caller needs. Inhibit returns how long the machine
	// will wait, which may be less; 0 means that the machine does not wait.
	Inhibit(ctx context.Context, need time.Duration) (allowed time.Duration, release func(), err error)
	// AwaitShutdown returns nil when the machine is about to shut down.
	AwaitShutdown(ctx context.Context) error
	// AwaitCancel returns nil when the machine has cancelled the shutdown.
	AwaitCancel(ctx context.Context) error
}

// HoldShutdown delays each shutdown of the machine until shutDown has returned.
// HoldShutdown calls shutDown with the time that the machine allows, for
// [PlanShutdown]. The ctx of shutDown is done when the machine cancels the
// shutdown; its cause is then [ErrShutdownCancelled]. Of the options,
// HoldShutdown uses only the fields Events and Node, for the event about a
// cancelled shutdown. It returns nil when ctx is done. It returns an error if
// the Inhibitor fails or the machine does not wait; the caller should then try
// again later.
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

// holdOne delays the next shutdown, and returns nil when the shutdown was
// cancelled.
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
		return fmt.Errorf("inhibit the shutdown of the machine: the machine allows no delay of its shutdown, but %v are needed", need)
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
		return fmt.Errorf("wait for a cancellation of the shutdown of the machine: %w", err)
	}
	return nil
}
