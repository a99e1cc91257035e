package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapierrors "k8s.io/cri-api/pkg/errors"

	"github.com/kubeparts/kubeparts/internal/backoff"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// ErrRunning is returned by a second [Rotator.Run] beside the first.
var ErrRunning = loop.ErrRunning

// lastRetry is the longest time between two tries to rotate a log that fails.
const lastRetry = 5 * time.Minute

// Rotator rotates the logs of running containers. Make it with [New]; its methods may
// be called by any number of goroutines, except that callbacks must not start a pass.
type Rotator struct {
	cfg  Config
	loop *loop.Loop
	// over replaces the files of a root, in tests.
	over func(*os.Root) files

	// step, of capacity 1, is full while a pass is under way and guards known.
	step  chan struct{}
	known map[string]*container
}

// container is what is known of one that runs. During a pass it belongs to the worker
// that has it.
type container struct {
	id string
	// path is below the root, full with it; empty if they are not known yet.
	path, full string
	// outside says that there is no log that we may touch.
	outside bool
	// unsure says that the runtime may not have noticed the last rotation, visited
	// that we have looked whether one of another process was.
	unsure, visited bool
	// retryAt is when to look again after a failure, delay how long that was.
	retryAt time.Time
	delay   time.Duration
}

// Result is what a pass did.
type Result struct {
	// Running is how many containers run, Rotated how many logs were rotated.
	Running, Rotated int
	// Took is how long all of it took.
	Took time.Duration
}

// New returns a rotator. It starts nothing.
func New(cfg Config) (*Rotator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("logrotate: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Rotator{
		cfg:   cfg,
		loop:  loop.New(cfg.Clock),
		over:  func(root *os.Root) files { return rootFiles{root} },
		step:  make(chan struct{}, 1),
		known: map[string]*container{},
	}, nil
}

// Run rotates at once and then each Interval, until ctx is done, and returns nil. What
// fails is logged and tried again with back-off. A second Run beside the first returns
// [ErrRunning].
func (r *Rotator) Run(ctx context.Context) error {
	return r.loop.Run(ctx, func(ctx context.Context) time.Duration {
		if _, err := r.Rotate(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.ErrorContext(ctx, "log rotation failed", "err", err)
		}
		return r.cfg.Interval
	})
}

// Rotate does one pass: it looks at the size of the log of every running container and
// rotates those that are too large. One that fails stops no other; it is in the error,
// and tried again by later passes with back-off. With a negative MaxSizeBytes it does
// nothing.
func (r *Rotator) Rotate(ctx context.Context) (res Result, err error) {
	if r.cfg.MaxSizeBytes < 0 {
		return res, nil
	}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	select {
	case r.step <- struct{}{}:
	case <-ctx.Done():
		return res, fmt.Errorf("wait for another pass: %w", ctx.Err())
	}
	defer func() { <-r.step }()
	began := r.cfg.Clock.Now()
	defer func() {
		res.Took = r.cfg.Clock.Since(began)
		r.cfg.Observer.Checked(res, err)
	}()
	running, err := r.refresh(ctx)
	if err != nil {
		return res, err
	}
	root, err := safeopen.Root(r.cfg.PodLogs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return res, nil // then there are no logs
	case err != nil:
		return res, fmt.Errorf("open pod logs: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	res.Running = len(running)
	res.Rotated, err = r.work(ctx, r.over(root), running, began)
	return res, err
}

// refresh notes which containers run.
func (r *Rotator) refresh(ctx context.Context) ([]*container, error) {
	logs, err := r.running(ctx)
	if err != nil {
		return nil, err
	}
	running, known := make([]*container, 0, len(logs)), make(map[string]*container, len(logs))
	for _, l := range logs {
		if l.ContainerID == "" || known[l.ContainerID] != nil {
			continue
		}
		c := r.known[l.ContainerID]
		if c == nil {
			c = &container{id: l.ContainerID}
		}
		if l.Path != "" {
			r.locate(c, l.Path)
		}
		known[c.id] = c
		running = append(running, c)
	}
	r.known = known
	return running, nil
}

// running returns the running containers, without paths if it was the runtime that
// told.
func (r *Rotator) running(ctx context.Context) ([]Log, error) {
	if r.cfg.Running != nil {
		logs, err := r.cfg.Running(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for running containers: %w", err)
		}
		return logs, nil
	}
	all, err := r.cfg.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	logs := make([]Log, 0, len(all))
	for _, c := range all {
		// Not every runtime looks at the filter.
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && r.cfg.Owned(c) {
			logs = append(logs, Log{ContainerID: c.GetId()})
		}
	}
	return logs, nil
}

// locate notes the path that the runtime gave.
func (r *Rotator) locate(c *container, file string) {
	below, err := filepath.Rel(r.cfg.PodLogs, file)
	c.outside = err != nil || !filepath.IsLocal(below) || below == "."
	c.path, c.full = filepath.ToSlash(below), file
}

// work looks at all logs, several at a time.
func (r *Rotator) work(ctx context.Context, f files, running []*container, now time.Time) (rotated int, err error) {
	var (
		mu    sync.Mutex
		errs  []error
		queue = make(chan *container, len(running))
		wg    sync.WaitGroup
	)
	for _, c := range running {
		queue <- c
	}
	close(queue)
	for range min(r.cfg.Workers, len(running)) {
		wg.Go(func() {
			for c := range queue {
				if c.outside || now.Before(c.retryAt) || ctx.Err() != nil {
					continue
				}
				done, err := r.visit(ctx, f, c)
				c.retryLater(now, r.cfg.Interval, err)
				mu.Lock()
				if done {
					rotated++
				}
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return rotated, errors.Join(append(errs, ctx.Err())...)
}

// retryLater makes one that fails wait twice as long each time.
func (c *container) retryLater(now time.Time, first time.Duration, err error) {
	if err == nil {
		c.delay, c.retryAt = 0, time.Time{}
		return
	}
	c.delay = backoff.Next(c.delay, first, lastRetry)
	c.retryAt = now.Add(c.delay)
}

// visit looks at one log and rotates it if it is too large.
func (r *Rotator) visit(ctx context.Context, f files, c *container) (rotated bool, err error) {
	if c.path == "" {
		if err := r.askPath(ctx, c); err != nil || c.outside {
			return false, err
		}
	}
	if c.visited && !c.unsure {
		// One look by its full name costs a tenth of one that follows no links; what
		// comes of it is looked at again.
		if info, err := os.Lstat(c.full); err == nil && info.Mode().IsRegular() && info.Size() < r.cfg.MaxSizeBytes {
			return false, nil
		}
	}
	info, err := f.lstat(c.path)
	if err == nil && !c.visited {
		c.visited, c.unsure = true, info.Size() == 0 && rotatedBefore(f, c.path)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && c.unsure {
		// A rotation has ended between its two steps: the runtime writes to the file
		// with the other name.
		if err := r.reopen(ctx, c.id); err != nil {
			return false, ignoreGone(fmt.Errorf("reopen log of container %s: %w", c.id, err))
		}
		c.unsure = false
		if info, err = f.lstat(c.path); errors.Is(err, fs.ErrNotExist) {
			return false, nil // this runtime writes none
		}
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("look at log of container %s: %w", c.id, err)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("log %s of container %s: %w", c.path, c.id, safeopen.ErrNotRegular)
	case info.Size() < r.cfg.MaxSizeBytes:
		return false, nil
	}
	return r.rotate(ctx, f, c, info.Size())
}

// rotatedBefore says whether a log has been rotated and not compressed since. If it is
// empty as well, the container may write to that file still.
func rotatedBefore(f files, log string) bool {
	names, err := f.list(path.Dir(log))
	if err != nil {
		return false // and no rotation will be possible
	}
	a := sortAside(path.Base(log), names)
	return len(a.rotated) > 0 && path.Ext(a.rotated[0]) != compressed
}

func (r *Rotator) rotate(ctx context.Context, f files, c *container, size int64) (bool, error) {
	began := r.cfg.Clock.Now()
	to, err := rotation{
		files: f, log: c.path, maxFiles: r.cfg.MaxFiles, now: began,
		reopen: func(ctx context.Context) error { return r.reopen(ctx, c.id) },
	}.run(ctx)
	c.unsure = errors.Is(err, errHalf)
	if err = ignoreGone(err); err != nil {
		err = fmt.Errorf("rotate log of container %s: %w", c.id, err)
	}
	r.cfg.Observer.Rotated(Rotation{
		Log: Log{c.id, c.full}, SizeBytes: size,
		To: to, Took: r.cfg.Clock.Since(began), Err: err,
	})
	return to != "" && !c.unsure, err
}

// askPath asks the runtime where the log is, once in the container's life.
func (r *Rotator) askPath(ctx context.Context, c *container) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	resp, err := r.cfg.Runtime.ContainerStatus(ctx, c.id, false)
	if err != nil {
		if criapierrors.IsNotFound(err) {
			c.outside = true // it is gone
			return nil
		}
		return fmt.Errorf("ask for log of container %s: %w", c.id, err)
	}
	r.locate(c, resp.GetStatus().GetLogPath())
	return nil
}

// reopen makes the runtime write to a file of the log's name. It is done even when
// ctx ends meanwhile: between renaming and this there is no good moment to stop.
func (r *Rotator) reopen(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.CallTimeout)
	defer cancel()
	return r.cfg.Runtime.ReopenContainerLog(ctx, id)
}

// ignoreGone drops the error about a container that is gone.
func ignoreGone(err error) error {
	if criapierrors.IsNotFound(err) {
		return nil
	}
	return err
}
