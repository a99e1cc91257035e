package imagegc

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// pass is a pass that may delete images.
type pass struct {
	res      Result
	measured bool
	tried    bool // to delete one
}

// deletion is the deletion of an image that is under way.
type deletion struct {
	image  Image
	reason Reason
	names  []string
	done   chan struct{} // closed at its end
	took   time.Duration
	err    error
}

const (
	// everything is the availability that no deletion reaches.
	everything = 1<<64 - 1
	// listFor is how long a list of containers is believed. Deletions may take
	// minutes, and containers come meanwhile whose images nobody leased.
	listFor = 5 * time.Second
	// removeTimeout bounds the deletion of one image, in real time even on a fake clock,
	// and so the time for which [Manager.Acquire] may have to wait.
	removeTimeout = 2 * time.Minute
)

// pass does one: look, act, tell.
func (m *Manager) pass(ctx context.Context, act func(*pass) error) (Result, error) {
	if err := m.lock(ctx); err != nil {
		return Result{}, err
	}
	defer m.unlock()
	p := &pass{res: Result{At: m.cfg.Clock.Now()}}
	err := m.detect(ctx, p.res.At)
	if err == nil {
		m.warnOfNoIDs()
		err = act(p)
	}
	if p.tried || m.owed {
		m.afterGC(ctx, p)
	}
	m.save(ctx, m.cfg.Clock.Now())
	p.res.Took = m.cfg.Clock.Since(p.res.At)
	m.cfg.Observer.Collected(p.res, err)
	return p.res, err
}

// afterGC lists what there is now, for the hook and for Images. If it cannot, the
// hook is called by the next pass.
func (m *Manager) afterGC(ctx context.Context, p *pass) {
	images, err := m.listImages(ctx)
	if m.owed = err != nil; m.owed {
		m.cfg.Logger.WarnContext(ctx, "listing the remaining images failed", "err", err)
		return
	}
	m.mu.Lock()
	m.images = images
	m.mu.Unlock()
	if m.cfg.AfterGC == nil {
		return
	}
	ids := make([]string, 0, len(images))
	for _, img := range images {
		if img.Id != "" {
			ids = append(ids, img.Id)
		}
	}
	m.cfg.AfterGC(ctx, ids, p.res.At)
}

// age deletes the images that have reached MaxAge.
func (m *Manager) age(ctx context.Context, p *pass) error {
	if m.policy.maxAge == 0 {
		return nil
	}
	if u, err := m.usage(ctx); err == nil { // else, Collect will meet the error
		m.measured(p, u)
	}
	verdicts := Select(p.res.At, m.snapshot(), m.cfg.Policy, Goal{Aged: true})
	return m.reclaim(ctx, p, deletions(verdicts), everything)
}

// free deletes images until so many more bytes are available than were at the last
// measurement. The error is a [*SpaceError] if all are deleted that may go and it is not
// enough.
func (m *Manager) free(ctx context.Context, p *pass, want uint64) error {
	p.res.WantBytes = want
	if want == 0 {
		return nil
	}
	before := p.res.After
	until := saturating(before.AvailableBytes, want)
	// Sizes are estimates, so that all that may go are queued.
	err := m.reclaim(ctx, p, deletions(Select(p.res.At, m.snapshot(), m.cfg.Policy, Goal{All: true})), until)
	if p.res.After.AvailableBytes >= until {
		return nil // failures on the way there are in the result
	}
	if err != nil {
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			want, gained(before, p.res.After), err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &SpaceError{Percent: before.Percent(), CapacityBytes: before.CapacityBytes, WantBytes: want, FreedBytes: gained(before, p.res.After)}
}

// deletions returns the verdicts that are to delete.
func deletions(verdicts []Verdict) []Verdict {
	for i, v := range verdicts {
		if !v.Delete {
			return verdicts[:i]
		}
	}
	return verdicts
}

// reclaim deletes the images of the queue, in order, until so much is available. It
// measures after each deletion. As long as deletions are under way it counts on the
// sizes of their images, so that working on several at a time deletes none too many
// by its own estimate.
func (m *Manager) reclaim(ctx context.Context, p *pass, queue []Verdict, until uint64) error {
	var errs []error
	ended := make(chan *deletion)
	flying, expected := 0, uint64(0)
	for {
		for len(queue) > 0 && flying < m.cfg.MaxDeletions && saturating(p.res.After.AvailableBytes, expected) < until {
			v := queue[0]
			queue = queue[1:]
			d, err := m.claim(ctx, v)
			if err != nil { // what is in use is not known any more
				errs = append(errs, err)
				queue = nil
				break
			}
			if d == nil {
				continue
			}
			p.tried = true
			flying, expected = flying+1, saturating(expected, v.Image.SizeBytes)
			go func() {
				m.remove(ctx, d)
				ended <- d
			}()
		}
		if flying == 0 {
			return errors.Join(errs...)
		}
		d := <-ended
		flying, expected = flying-1, expected-min(expected, d.image.SizeBytes)
		m.finish(ctx, p, d)
		if d.err != nil {
			errs = append(errs, d.err)
		} else if err := m.measure(ctx, p); err != nil && until != everything {
			errs = append(errs, err) // how much is enough cannot be told
			queue = nil
		}
	}
}

// claim begins a deletion, unless somebody has come to want the image since it was
// selected. From here on Acquire waits.
func (m *Manager) claim(ctx context.Context, v Verdict) (*deletion, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.cfg.Clock.Since(m.usersAt) > listFor {
		uninspected, err := m.listContainers(ctx)
		if err == nil {
			err = m.inspect(ctx, uninspected)
		}
		if err != nil {
			return nil, err
		}
	}
	names := imageNames(v.Image.ID, v.Image.Tags, v.Image.Digests)
	if m.users.of(names, v.Image.RuntimeHandler) > 0 {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if owners, _ := m.leasedBy(names, m.cfg.Clock.Now()); len(owners) > 0 {
		return nil, nil
	}
	d := &deletion{image: v.Image, reason: v.Reason, names: names, done: make(chan struct{})}
	m.deleting[v.Image.key()] = d
	return d, nil
}

// remove deletes an image with all its names. One that is not there any more is
// deleted.
func (m *Manager) remove(ctx context.Context, d *deletion) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	began := m.cfg.Clock.Now()
	spec := &runtimeapi.ImageSpec{Image: d.image.ID, RuntimeHandler: d.image.RuntimeHandler}
	err := m.cfg.Images.RemoveImage(ctx, spec)
	if err != nil && !crierrors.IsNotFound(err) {
		d.err = fmt.Errorf("remove image %s: %w", d.image.Name(), err)
	}
	d.took = m.cfg.Clock.Since(began)
	m.mu.Lock()
	delete(m.deleting, d.image.key())
	m.mu.Unlock()
	close(d.done)
}

// finish notes how a deletion ended.
func (m *Manager) finish(ctx context.Context, p *pass, d *deletion) {
	removal := Removal{Image: d.image, Reason: d.reason, Err: d.err}
	if d.err == nil {
		delete(m.records, d.image.key())
		m.changed = true
		p.res.Removed = append(p.res.Removed, removal)
		m.cfg.Logger.InfoContext(ctx, "image removed", "image", d.image.Name(), "imageID", d.image.ID,
			"bytes", d.image.SizeBytes, "reason", string(d.reason))
	} else {
		if r := m.records[d.image.key()]; r != nil && ctx.Err() == nil {
			r.failed(m.cfg.Clock.Now())
		}
		p.res.Failed = append(p.res.Failed, removal)
	}
	m.cfg.Observer.Removed(removal.Image, d.reason, d.took, d.err)
}

// measure takes a measurement for the result.
func (m *Manager) measure(ctx context.Context, p *pass) error {
	u, err := m.usage(ctx)
	if err == nil {
		m.measured(p, u)
	}
	return err
}

// usage returns a measurement that makes sense.
func (m *Manager) usage(ctx context.Context) (Usage, error) {
	u, err := m.cfg.FS.Usage(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("measure image filesystem: %w", err)
	}
	if u.CapacityBytes == 0 {
		m.warn(eventInvalidDiskCapacity, "", ErrInvalidCapacity.Error())
		return Usage{}, ErrInvalidCapacity
	}
	u.AvailableBytes = min(u.AvailableBytes, u.CapacityBytes)
	m.cfg.Observer.Measured(u)
	return u, nil
}

func (m *Manager) measured(p *pass, u Usage) {
	if !p.measured {
		p.measured, p.res.Before = true, u
	}
	p.res.After = u
	p.res.FreedBytes = gained(p.res.Before, u)
}

// gained returns how much more is available.
func gained(before, after Usage) uint64 {
	return after.AvailableBytes - min(after.AvailableBytes, before.AvailableBytes)
}
