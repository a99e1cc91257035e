package imagegc

import (
	"context"
	"time"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

// record is what the manager records about a listed image.
type record struct {
	age
	containers int // number of containers that used the image when containers were last listed
	deletions  retries
}

// retries delays the next attempt after failures: by 1 min, 2 min and so on up to 1 h.
type retries struct {
	failures int // in a row
	retryAt  time.Time
}

func (r *retries) failed(now time.Time) {
	r.retryAt = now.Add(backoff.After(r.failures, firstRetry, lastRetry))
	r.failures++
}

const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// load reads the ages that the previous process saved. It does not add the time that has passed
// since the ages were saved: if the wall clock was set in between, that time could be decades.
func (m *Manager) load(ctx context.Context, now time.Time) {
	if m.loaded {
		return
	}
	m.loaded = true
	if m.cfg.State == nil {
		return
	}
	saved, err := loadAges(ctx, m.cfg.State)
	if err != nil {
		m.storeFailed(ctx, err)
	}
	for key, a := range saved.Images {
		m.records[key] = &record{age: age{
			FirstDetected: rebaseTime(now, a.FirstDetected, saved.SavedAt), LastUsed: rebaseTime(now, a.LastUsed, saved.SavedAt),
		}}
	}
}

// rebaseTime converts t, a time in the stored ages. The result is as long before now as t was
// before the ages were stored.
func rebaseTime(now, t, saved time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(-max(0, saved.Sub(t)))
}

// save writes the ages if an image was added or removed, or if its use started or ended.
// Otherwise only the times of the last use of images in use have changed, and save writes the
// ages once per Period.
func (m *Manager) save(ctx context.Context, now time.Time) {
	if m.cfg.State == nil || !m.changed && now.Sub(m.savedAt) < m.cfg.Period {
		return
	}
	saved := ages{SavedAt: now.Round(0), Images: make(map[string]age, len(m.records))}
	for key, r := range m.records {
		saved.Images[key] = age{FirstDetected: wallTime(now, r.FirstDetected), LastUsed: wallTime(now, r.LastUsed)}
	}
	if err := saveAges(ctx, m.cfg.State, saved); err != nil {
		m.storeFailed(ctx, err)
		return
	}
	m.changed, m.savedAt = false, now
}

// finalSaveTimeout is how long Run waits at its end for the current pass and the store.
const finalSaveTimeout = 5 * time.Second

// saveFinal writes the ages at the end of Run, so that they include the time until now.
// The time until the next process starts does not count.
func (m *Manager) saveFinal(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalSaveTimeout)
	defer cancel()
	if m.lock(ctx) != nil {
		return
	}
	defer m.unlock()
	if m.loaded { // otherwise m has not read the stored ages, and would overwrite them
		m.changed = true
		m.save(ctx, m.cfg.Clock.Now())
	}
}

// wallTime returns the time t according to the present setting of the wall clock. A node
// without a battery-backed clock starts in 1970 and sets its clock later. Without the
// conversion, its images would seem to be decades old after a restart.
func wallTime(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(t.Sub(now)).Round(0)
}

func (m *Manager) storeFailed(ctx context.Context, err error) {
	m.cfg.Logger.WarnContext(ctx, "could not read or write the times of last use of images, images may be deleted too late or too early after a restart", "err", err)
	m.cfg.Observer.StoreFailed(err)
}
