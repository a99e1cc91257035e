package imagegc

import (
	"context"
	"time"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

// record is what is remembered of a listed image.
type record struct {
	age
	containers int // that used it when containers were last listed
	deletions  retries
}

// retries delays the next attempt after failures: by 1 m, 2 m and so on up to 1 h.
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

// load takes over the ages of the process before, as they were when it saved them. The
// time since then does not count: what the clock on the wall makes of it is decades if
// it was set meanwhile.
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
			FirstDetected: asOld(now, a.FirstDetected, saved.SavedAt), LastUsed: asOld(now, a.LastUsed, saved.SavedAt),
		}}
	}
}

// asOld returns the time that is as long before now as t is before saved.
func asOld(now, t, saved time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(-max(0, saved.Sub(t)))
}

// save writes the ages if something was detected or fell out of use, and otherwise
// once per Period: then only times of use have changed, of images that are in use.
func (m *Manager) save(ctx context.Context, now time.Time) {
	if m.cfg.State == nil || !m.changed && now.Sub(m.savedAt) < m.cfg.Period {
		return
	}
	saved := ages{SavedAt: now.Round(0), Images: make(map[string]age, len(m.records))}
	for key, r := range m.records {
		saved.Images[key] = age{FirstDetected: onWall(now, r.FirstDetected), LastUsed: onWall(now, r.LastUsed)}
	}
	if err := saveAges(ctx, m.cfg.State, saved); err != nil {
		m.storeFailed(ctx, err)
		return
	}
	m.changed, m.savedAt = false, now
}

// lastSave is how long Run waits at its end for a pass that is under way, and the store.
const lastSave = 5 * time.Second

// saveLast writes the ages at the end of Run: the time until the next process does not
// count, but all of the time until now does.
func (m *Manager) saveLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSave)
	defer cancel()
	if m.lock(ctx) != nil {
		return
	}
	defer m.unlock()
	if m.loaded { // or what is in the store is newer
		m.changed = true
		m.save(ctx, m.cfg.Clock.Now())
	}
}

// onWall returns when t was by the clock on the wall as it is set now. A node without
// a battery begins in 1970 and is told the time later: written down as they were, its
// ages would be decades after a restart.
func onWall(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(t.Sub(now)).Round(0)
}

func (m *Manager) storeFailed(ctx context.Context, err error) {
	m.cfg.Logger.WarnContext(ctx, "ages of images not kept", "err", err)
	m.cfg.Observer.StoreFailed(err)
}
