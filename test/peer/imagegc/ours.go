package imagegc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func playOurs(t *testing.T, w *World) []judge.Facts {
	t.Helper()
	return play(t, w, func(t *testing.T, n *node) agent {
		t.Helper()
		return &ours{t: t, node: n, end: func() {}}
	})
}

// ours is our manager.
type ours struct {
	t       *testing.T
	node    *node
	manager *imagegc.Manager
	saved   []byte              // the saved ages; nil if no ages are saved
	reasons map[string][]string // by image
	started bool
	passes  chan error
	end     func()
	result  imagegc.Result  // of the last pass
	usages  []imagegc.Usage // measurements of the last pass
}

// start creates a manager. In a world with a loop it also starts the loop.
func (a *ours) start() error {
	a.end()
	w := a.node.w
	cfg := imagegc.Config{
		Images: a.node, Runtime: a.node, FS: a,
		RuntimeClassInImageCriAPI: w.Gate,
		Policy:                    imagegc.Policy{HighThresholdPercent: w.High, LowThresholdPercent: w.Low, MinAge: w.MinAge, MaxAge: w.MaxAge},
		AfterGC: func(_ context.Context, remaining []string, began time.Time) {
			a.node.hook(remaining, time.Now().Add(-judge.WallClock{Offset: &a.node.offset}.Since(began)))
		},
		Period: 1e5 * time.Hour, DetectPeriod: 1e5 * time.Hour, MaxNodeImages: 3,
		Events: a, Node: &corev1.Node{}, EventPeriod: 1,
		Clock: judge.WallClock{Offset: &a.node.offset},
	}
	if w.Store {
		cfg.State = a
	}
	if !w.Loop {
		cfg.Period = 0 // the loop then only saves ages
	}
	if w.Quiet {
		cfg.EventPeriod = 0
	}
	passes := make(chan error, 10)
	cfg.Observer.Removed = func(image imagegc.Image, reason imagegc.Reason, _ time.Duration, _ error) {
		name := w.name(image.ID, image.RuntimeHandler)
		a.reasons[name] = append(a.reasons[name], string(reason))
	}
	cfg.Observer.Collected = func(res imagegc.Result, err error) {
		a.result = res
		passes <- err
	}
	var err error
	a.manager, err = imagegc.New(cfg)
	a.passes, a.started, a.end = passes, false, func() {}
	a.node.nils, a.node.answers = true, nil
	return err
}

func (a *ours) run() {
	ctx, cancel := context.WithCancel(a.t.Context())
	ended := make(chan error)
	go func() { ended <- a.manager.Run(ctx) }()
	a.end = func() {
		cancel()
		require.NoError(a.t, <-ended)
	}
}

func (a *ours) act(ctx context.Context, what string) (reasons []string, err error) {
	a.reasons, a.usages = map[string][]string{}, nil
	switch {
	case what == "detect":
		err = a.manager.Detect(ctx)
	case what == "delete unused":
		err = a.manager.DeleteUnusedImages(ctx)
		require.Equal(a.t, <-a.passes, err)
	case a.node.w.Loop:
		if !a.started {
			a.run()
		} else {
			a.manager.Trigger()
		}
		err = <-a.passes
		synctest.Wait() // wait for the event
	default:
		_, err = a.manager.Collect(ctx)
		require.Equal(a.t, <-a.passes, err)
	}
	a.started = true
	a.node.told = a.problems(what, err)
	for _, try := range a.node.tries {
		if all := a.reasons[try.name]; len(all) > 0 {
			reasons = append(reasons, all[0])
			a.reasons[try.name] = all[1:]
		} else {
			reasons = append(reasons, "not reported")
		}
	}
	return reasons, err
}

func (a *ours) status(context.Context) string { return fmt.Sprint(a.manager.Images()) }

func (a *ours) stop() { a.end() }

// Usage returns the usage of the disk.
func (a *ours) Usage(context.Context) (imagegc.Usage, error) {
	capacity, available, err := a.node.usage()
	u := imagegc.Usage{CapacityBytes: capacity, AvailableBytes: available}
	if err == nil && capacity > 0 {
		a.usages = append(a.usages, imagegc.Usage{CapacityBytes: capacity, AvailableBytes: min(available, capacity)})
	}
	return u, err
}

func (a *ours) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if reason == "ImageGCFailed" {
		message = faults(errors.New(message))
	}
	a.node.events = append(a.node.events, reason+" "+message)
}

// Get and Put store the ages.
func (a *ours) Get(context.Context, string) ([]byte, error) {
	switch {
	case a.node.faults.Load:
		return nil, errors.New("fault:load")
	case a.saved == nil:
		return nil, fs.ErrNotExist
	}
	return a.saved, nil
}

func (a *ours) Put(_ context.Context, _ string, value []byte) error {
	if a.node.faults.Save {
		return errors.New("fault:save")
	}
	a.saved = slices.Clone(value)
	return nil
}
