package imagegc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// pass is the state of a pass that may delete images.
type pass struct {
	res   Result
	tried bool // the pass has tried to delete an image
}

// deletion is the deletion of an image in progress.
type deletion struct {
	names []string      // names of the image
	done  chan struct{} // closed when the deletion has ended
}

const (
	// unlimited is an amount of available bytes that is never reached: all images in the
	// queue are deleted.
	unlimited = 1<<64 - 1
	// listMaxAge is how long a list of containers is used. Deletions may take minutes, and
	// meanwhile clients may create containers from images without a lease.
	listMaxAge = 5 * time.Second
	// removeTimeout limits the deletion of one image, in real time even with a fake clock. It
	// therefore also limits how long [Manager.Acquire] waits.
	removeTimeout = 2 * time.Minute
)

// pass runs one pass: it detects images and their use, calls act and reports the result.
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
	if p.tried || m.afterGCPending {
		m.afterGC(ctx, p)
	}
	m.save(ctx, m.cfg.Clock.Now())
	p.res.Took = m.cfg.Clock.Since(p.res.At)
	m.cfg.Observer.Collected(p.res, err)
	return p.res, err
}

// afterGC lists the remaining images, stores them for [Manager.Images] and calls
// Config.AfterGC. If the list fails, the next pass calls Config.AfterGC.
func (m *Manager) afterGC(ctx context.Context, p *pass) {
	images, err := m.listImages(ctx)
	if m.afterGCPending = err != nil; m.afterGCPending {
		m.cfg.Logger.WarnContext(ctx, "could not list the images that remain after garbage collection, will retry in the next pass", "err", err)
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
	slices.Sort(ids)
	m.cfg.AfterGC(ctx, slices.Compact(ids), p.res.At) // the runtime may list an image twice
}

// deleteAged deletes the images that have reached MaxAge.
func (m *Manager) deleteAged(ctx context.Context, p *pass) error {
	if m.policy.maxAge == 0 {
		return nil
	}
	_ = m.measure(ctx, p) // Collect measures again, and returns the error
	decisions := PlanDeletions(p.res.At, m.snapshot(), m.cfg.Policy, Goal{Aged: true})
	return m.reclaim(ctx, p, deletions(decisions), unlimited)
}

// free deletes images until the number of available bytes has risen by the given number
// since the last measurement. The error is a [*SpaceError] if all unprotected images were
// deleted and that was not enough.
func (m *Manager) free(ctx context.Context, p *pass, want uint64) error {
	p.res.WantBytes = want
	if want == 0 {
		return nil
	}
	before := p.res.After
	until := saturatingAdd(before.AvailableBytes, want)
	// The sizes are estimates, so the queue has all images that may be deleted.
	err := m.reclaim(ctx, p, deletions(PlanDeletions(p.res.At, m.snapshot(), m.cfg.Policy, Goal{All: true})), until)
	if p.res.After.AvailableBytes >= until {
		return nil // failed deletions are in the result
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

// deletions returns the decisions with Delete set, which come first.
func deletions(decisions []Decision) []Decision {
	for i, v := range decisions {
		if !v.Delete {
			return decisions[:i]
		}
	}
	return decisions
}

// reclaim deletes the images of the queue, in order, until the given number of bytes is
// available. It measures the filesystem after each deletion.
func (m *Manager) reclaim(ctx context.Context, p *pass, queue []Decision, until uint64) error {
	var errs []error
	for _, v := range queue {
		if p.res.After.AvailableBytes >= until {
			break
		}
		d, err := m.beginDeletion(ctx, v.Image)
		if err != nil { // it is unknown which images are in use
			errs = append(errs, err)
			break
		}
		if d == nil {
			continue
		}
		if err := m.remove(ctx, p, v, d); err != nil {
			errs = append(errs, err)
		} else if err := m.measure(ctx, p); err != nil && until != unlimited { // it is unknown whether enough space is available
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(errs...)
}

// beginDeletion starts a deletion: from now on, Acquire waits until the deletion has ended. It
// returns nil if, since the image was selected, a container has started to use the image or a
// caller has leased it.
func (m *Manager) beginDeletion(ctx context.Context, img Image) (*deletion, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.cfg.Clock.Since(m.usersAt) > listMaxAge {
		uninspected, err := m.listContainers(ctx)
		if err == nil {
			err = m.inspect(ctx, uninspected)
		}
		if err != nil {
			return nil, err
		}
	}
	names := imageNames(img.ID, img.Tags, img.Digests)
	m.mu.Lock()
	defer m.mu.Unlock()
	if owners, _ := m.leasedBy(names, m.cfg.Clock.Now()); len(owners) > 0 || m.users.countOf(names, img.RuntimeHandler) > 0 {
		return nil, nil
	}
	m.deleting = &deletion{names: names, done: make(chan struct{})}
	return m.deleting, nil
}

// remove deletes an image with all its names, and records the result. An image that the
// runtime does not find counts as deleted.
func (m *Manager) remove(ctx context.Context, p *pass, v Decision, d *deletion) error {
	p.tried = true
	img, began := v.Image, m.cfg.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, removeTimeout)
	err := m.cfg.Images.RemoveImage(limited, &runtimeapi.ImageSpec{Image: img.ID, RuntimeHandler: img.RuntimeHandler})
	cancel()
	m.mu.Lock()
	m.deleting = nil
	m.mu.Unlock()
	close(d.done)
	removal := Removal{Image: img, Reason: v.Reason}
	if err == nil || crierrors.IsNotFound(err) {
		delete(m.records, img.key())
		m.changed = true
		p.res.Removed = append(p.res.Removed, removal)
		m.cfg.Logger.InfoContext(ctx, "image removed", "image", img.Name(), "imageID", img.ID,
			"bytes", img.SizeBytes, "reason", string(v.Reason))
	} else {
		removal.Err = fmt.Errorf("remove image %s: %w", img.Name(), err)
		if ctx.Err() == nil {
			m.records[img.key()].deletions.failed(m.cfg.Clock.Now())
		}
		p.res.Failed = append(p.res.Failed, removal)
	}
	m.cfg.Observer.Removed(img, v.Reason, m.cfg.Clock.Since(began), removal.Err)
	return removal.Err
}

// errNoFS is the error of [Manager.Free] without an FS.
var errNoFS = errors.New("cannot free space: the image filesystem is not measured")

// measure measures the filesystem, if there is an FS, and records the usage in the result.
func (m *Manager) measure(ctx context.Context, p *pass) error {
	if m.cfg.FS == nil {
		return nil
	}
	u, err := m.usage(ctx)
	if err == nil {
		m.recordUsage(p, u)
	}
	return err
}

// usage returns a valid measurement of the filesystem.
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

func (m *Manager) recordUsage(p *pass, u Usage) {
	if p.res.Before == (Usage{}) {
		p.res.Before = u
	}
	p.res.After = u
	p.res.FreedBytes = gained(p.res.Before, u)
}

// gained returns by how many bytes the available space has grown, at least 0.
func gained(before, after Usage) uint64 {
	return after.AvailableBytes - min(after.AvailableBytes, before.AvailableBytes)
}
