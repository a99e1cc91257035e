package agent

import (
	"context"
	"fmt"
	"slices"
)

// part is one of the parts that Run starts and joins.
type part struct {
	name string
	run  func(context.Context) error
}

// run starts the parts in order. When ctx is done or a part returns, run stops and joins the
// parts in reverse order. If a part returned before run stopped the parts, run returns the error
// of that part. Otherwise, run returns the first error of a stopped part, in the order of the
// parts.
func run(ctx context.Context, parts ...part) error {
	type end struct {
		of  int
		err error
	}
	ended := make(chan end)
	stop := make([]context.CancelFunc, len(parts))
	for i, p := range parts {
		var running context.Context
		running, stop[i] = context.WithCancel(context.WithoutCancel(ctx))
		defer stop[i]()
		go func() { ended <- end{i, p.run(running)} }()
	}
	results := make([]error, len(parts))
	joined := make([]bool, len(parts))
	join := func(e end) {
		joined[e.of] = true
		if e.err != nil {
			results[e.of] = fmt.Errorf("agent: %s: %w", parts[e.of].name, e.err)
		}
	}
	var cause error
	select {
	case <-ctx.Done():
	case e := <-ended:
		join(e)
		cause = results[e.of]
		if cause == nil {
			cause = fmt.Errorf("agent: %s returned before it was stopped", parts[e.of].name)
		}
	}
	for i := range slices.Backward(parts) {
		stop[i]()
		for !joined[i] {
			join(<-ended)
		}
	}
	if cause != nil {
		return cause
	}
	return firstError(results)
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
