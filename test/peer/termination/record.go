package termination

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

var (
	errStop = errors.New("the container can't be stopped")
	errHook = errors.New("the container has ended")
)

// A node has the containers of a world while one side stops them, and records the actions of
// the side. It is created in a synctest bubble.
type node struct {
	w     *world
	began time.Time
	ended map[string]chan struct{}

	mu     sync.Mutex
	facts  judge.Facts
	failed bool
	once   map[string]*sync.Once
}

// newNode returns a node. Its containers exit by themselves until stop is called.
func newNode(w *world) (n *node, stop func()) {
	n = &node{w: w, began: time.Now(), ended: map[string]chan struct{}{}, facts: judge.Facts{}, once: map[string]*sync.Once{}}
	for _, c := range w.Containers {
		n.ended[c.Name], n.once[c.Name] = make(chan struct{}), &sync.Once{}
		if !c.Running {
			n.end(c.Name)
		}
	}
	over := make(chan struct{})
	var exits sync.WaitGroup
	for _, c := range w.Containers {
		if c.Exits == 0 || !c.Running {
			continue
		}
		exits.Go(func() {
			select {
			case <-n.after(c.Exits):
				n.end(c.Name)
			case <-over:
			}
		})
	}
	return n, func() {
		close(over)
		exits.Wait()
	}
}

func (n *node) end(name string) { n.once[name].Do(func() { close(n.ended[name]) }) }

func (n *node) fact(name, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.facts[name] += fmt.Sprintf("after %s", n.elapsed()) + fmt.Sprintf(format, args...)
}

func (n *node) elapsed() time.Duration { return time.Since(n.began) / n.w.scale }

// after returns a channel that is sent to after d.
func (n *node) after(d time.Duration) <-chan time.Time { return time.After(d * n.w.scale) }

// hook runs the preStop hook of a container.
func (n *node) hook(ctx context.Context, name string) error {
	c := n.w.container(name)
	n.fact("container "+name+"/hook", "")
	ended := n.ended[name]
	if c.Survives {
		ended = nil
	}
	select {
	case <-n.after(c.Hook):
		return nil
	case <-ended:
		return errHook
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop stops a container as a runtime does: it returns when the container has ended.
func (n *node) stop(ctx context.Context, name string, grace time.Duration) error {
	c := n.w.container(name)
	n.fact("container "+name+"/stop", ", grace %s", grace)
	var fails <-chan time.Time
	if c.Fails > 0 {
		fails = n.after(c.Fails)
	}
	select {
	case <-n.ended[name]:
		return nil
	default:
	}
	select {
	case <-n.ended[name]:
	case <-n.after(min(c.Ends, grace)):
		n.end(name)
	case <-fails:
		n.mu.Lock()
		n.failed = true
		n.mu.Unlock()
		if n.w.quiet {
			return nil
		}
		return errStop
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
