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

// ErrRunning is returned by [Rotator.Run] while another Run is active.
var ErrRunning = loop.ErrRunning

// maxRetry is the maximum time until a failed rotation is retried.
const maxRetry = 5 * time.Minute

// Rotator rotates the logs of running containers. Create it with [New]. Its methods may
// be called concurrently, but callbacks must not start a pass.
type Rotator struct {
	cfg  Config
	loop *loop.Loop
	// openFiles returns the file operations below a root; tests replace it.
	openFiles func(*os.Root) files

	// step, of capacity 1, is full while a pass runs, and guards the field known.
	step  chan struct{}
	known map[string]*container
}

// container is a running container. During a pass, only one worker uses it.
type container struct {
	id string
	// path is the log's path below the root. The field full is the log's absolute path. Both
	// are empty if they are not known yet.
	path, full string
	// ignored reports that the container has no log below the root.
	ignored bool
	// reopenPending reports that the runtime may not have reopened the log after the last
	// rotation. checked reports that the log was checked for an interrupted rotation of
	// an earlier process.
	reopenPending, checked bool
	// retryAt is when the log may be checked again after a failure. The field delay is the
	// last back-off.
	retryAt time.Time
	delay   time.Duration
}

// Result is the result of a pass.
type Result struct {
	// Running is the number of running containers, Rotated the number of logs that were
	// rotated.
	Running, Rotated int
	// Took is how long the pass took.
	Took time.Duration
}

// New returns a Rotator. It starts nothing.
func New(cfg Config) (*Rotator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("logrotate: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Rotator{
		cfg:       cfg,
		loop:      loop.New(cfg.Clock),
		openFiles: func(root *os.Root) files { return rootFiles{root} },
		step:      make(chan struct{}, 1),
		known:     map[string]*container{},
	}, nil
}

// Run rotates at once and then once per Interval, and returns nil when ctx is done.
// Failures are logged and retried with back-off. While another Run is active, it returns
// [ErrRunning].
func (r *Rotator) Run(ctx context.Context) error {
	return r.loop.Run(ctx, func(ctx context.Context) time.Duration {
		if _, err := r.Rotate(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.ErrorContext(ctx, "log rotation failed, will retry", "err", err)
		}
		return r.cfg.Interval
	})
}

// Rotate runs one pass: it checks the size of the log of every running container and
// rotates the logs that are too large. A failed rotation does not stop other rotations.
// The error joins all failures, and later passes retry the failed rotations with back-off.
// If MaxSizeBytes is negative, Rotate does nothing.
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
		return res, nil // there are no logs
	case err != nil:
		return res, fmt.Errorf("open pod logs: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	res.Running = len(running)
	res.Rotated, err = r.work(ctx, r.openFiles(root), running, began)
	return res, err
}

// refresh updates the running containers and returns them.
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

// running returns the logs of the running containers. If it lists the containers in the
// runtime, the logs have no paths.
func (r *Rotator) running(ctx context.Context) ([]Log, error) {
	if r.cfg.Running != nil {
		logs, err := r.cfg.Running(ctx)
		if err != nil {
			return nil, fmt.Errorf("list running containers: %w", err)
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
		// Some runtimes ignore the filter.
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && r.cfg.Owned(c) {
			logs = append(logs, Log{ContainerID: c.GetId()})
		}
	}
	return logs, nil
}

// locate sets the container's log path, and ignores the container if the path is not below
// PodLogs.
func (r *Rotator) locate(c *container, file string) {
	below, err := filepath.Rel(r.cfg.PodLogs, file)
	c.ignored = err != nil || !filepath.IsLocal(below) || below == "."
	c.path, c.full = filepath.ToSlash(below), file
}

// work checks the logs of the running containers on up to Workers goroutines.
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
				if c.ignored || now.Before(c.retryAt) || ctx.Err() != nil {
					continue
				}
				done, err := r.check(ctx, f, c)
				failure := err
				if done {
					failure = nil // an older file could not be compressed; the log must not grow because of that
				}
				c.setBackoff(now, r.cfg.Interval, failure)
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

// setBackoff doubles the back-off after a failure and resets it after a success.
func (c *container) setBackoff(now time.Time, first time.Duration, err error) {
	if err == nil {
		c.delay, c.retryAt = 0, time.Time{}
		return
	}
	c.delay = backoff.Next(c.delay, first, maxRetry)
	c.retryAt = now.Add(c.delay)
}

// check checks one log and rotates it if it is too large.
func (r *Rotator) check(ctx context.Context, f files, c *container) (rotated bool, err error) {
	if c.path == "" {
		if err := r.fetchPath(ctx, c); err != nil || c.ignored {
			return false, err
		}
	}
	if c.checked && !c.reopenPending {
		// os.Lstat takes a tenth of the time of f.lstat, but follows symbolic links in the
		// path. Therefore a file that is too large is checked again with f.lstat.
		if info, err := os.Lstat(c.full); err == nil && info.Mode().IsRegular() && info.Size() < r.cfg.MaxSizeBytes {
			return false, nil
		}
	}
	info, err := f.lstat(c.path)
	if err == nil && !c.checked {
		c.checked, c.reopenPending = true, info.Size() == 0 && rotatedBefore(f, c.path)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && c.reopenPending {
		// A rotation may have been interrupted between renaming and reopening the log. The
		// runtime then still writes to the renamed file.
		if err := r.reopen(ctx, c.id); err != nil {
			return false, ignoreNotFound(fmt.Errorf("reopen log of container %s: %w", c.id, err))
		}
		c.reopenPending = false
		if info, err = f.lstat(c.path); errors.Is(err, fs.ErrNotExist) {
			return false, nil // the runtime writes no log
		}
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("stat log of container %s: %w", c.id, err)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("log %s of container %s: %w", c.path, c.id, safeopen.ErrNotRegular)
	case info.Size() < r.cfg.MaxSizeBytes:
		return false, nil
	}
	return r.rotate(ctx, f, c, info.Size())
}

// rotatedBefore reports whether the newest rotated file of a log is not compressed. If, in
// addition, the log is empty, the runtime may still write to the rotated file.
func rotatedBefore(f files, log string) bool {
	names, err := f.list(path.Dir(log))
	if err != nil {
		return false // a rotation will fail for the same reason
	}
	a := classify(path.Base(log), names)
	return len(a.rotated) > 0 && path.Ext(a.rotated[0]) != compressed
}

func (r *Rotator) rotate(ctx context.Context, f files, c *container, size int64) (bool, error) {
	began := r.cfg.Clock.Now()
	to, err := rotation{
		files: f, log: c.path, maxFiles: r.cfg.MaxFiles, now: began,
		reopen: func(ctx context.Context) error { return r.reopen(ctx, c.id) },
	}.run(ctx)
	c.reopenPending = errors.Is(err, errNotReopened)
	if err = ignoreNotFound(err); err != nil {
		err = fmt.Errorf("rotate log of container %s: %w", c.id, err)
	}
	r.cfg.Observer.Rotated(Rotation{
		Log: Log{c.id, c.full}, SizeBytes: size,
		To: to, Took: r.cfg.Clock.Since(began), Err: err,
	})
	return to != "" && !c.reopenPending, err
}

// fetchPath requests the log's path from the runtime. It is called for each container
// until it has succeeded.
func (r *Rotator) fetchPath(ctx context.Context, c *container) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	resp, err := r.cfg.Runtime.ContainerStatus(ctx, c.id, false)
	if err != nil {
		if criapierrors.IsNotFound(err) {
			c.ignored = true // the container does not exist any more
			return nil
		}
		return fmt.Errorf("get log path of container %s: %w", c.id, err)
	}
	r.locate(c, resp.GetStatus().GetLogPath())
	return nil
}

// reopen makes the runtime open the log file by its name, and create the file if it does
// not exist. It also does so if ctx is done, because a rotation must not stop between
// renaming and reopening the log.
func (r *Rotator) reopen(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.CallTimeout)
	defer cancel()
	return r.cfg.Runtime.ReopenContainerLog(ctx, id)
}

// ignoreNotFound returns err, or nil if err means that the container does not exist any
// more.
func ignoreNotFound(err error) error {
	if criapierrors.IsNotFound(err) {
		return nil
	}
	return err
}
