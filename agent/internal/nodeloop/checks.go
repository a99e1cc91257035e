package nodeloop

import (
	"fmt"
	"sync"
)

// Names of the parts in the health checks.
const (
	partRuntime    = "runtime"
	partHost       = "host"
	partEviction   = "eviction"
	partImages     = "images"
	partContainers = "containers"
	partLogs       = "logs"
	partOOM        = "oom"
)

// parts records the last error of each part.
type parts struct {
	changed func()

	mu   sync.Mutex
	errs map[string]error
}

func (p *parts) init(changed func()) {
	p.changed = changed
	p.errs = map[string]error{partRuntime: ErrRuntimeStatusUnknown}
}

// record replaces the last error of a part. Nil means that the part has no error. If the error
// has changed, record calls Config.Changed, without holding a lock.
func (p *parts) record(name string, err error) {
	p.mu.Lock()
	before := p.errs[name]
	p.errs[name] = err
	p.mu.Unlock()
	if fmt.Sprint(before) != fmt.Sprint(err) {
		p.changed()
	}
}

func (p *parts) err(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs[name]
}

// notes returns the last error of a part as a note. A failed pass does not make the part
// unhealthy, because another pass follows.
func (p *parts) notes(name string) []string {
	if err := p.err(name); err != nil {
		return []string{"the last pass failed: " + err.Error()}
	}
	return nil
}

// Checks returns the state of each part in a fixed order. The parts on which other parts depend
// come first.
func (l *Loop) Checks() []Check {
	return []Check{
		{Name: partRuntime, Err: l.parts.err(partRuntime)},
		{Name: partHost, Err: l.parts.err(partHost)},
		{Name: partEviction, Notes: l.evictionNotes()},
		{Name: partImages, Notes: l.parts.notes(partImages)},
		{Name: partContainers, Notes: l.parts.notes(partContainers)},
		{Name: partLogs, Notes: l.logNotes()},
		{Name: partOOM, Notes: l.oomNotes()},
	}
}

// evictionNotes returns the pressure conditions and the measurements that failed.
func (l *Loop) evictionNotes() (notes []string) {
	if l.cfg.Host.Stats == nil {
		return []string{"the host has no statistics: pods are not evicted"}
	}
	for _, c := range l.pressure.conditions() {
		notes = append(notes, string(c))
	}
	if err := l.parts.err(partEviction); err != nil {
		notes = append(notes, "some measurements failed: "+err.Error())
	}
	return notes
}

func (l *Loop) logNotes() []string {
	if l.logs == nil {
		return []string{"no folder for pod logs is configured: logs are neither rotated nor removed"}
	}
	return l.parts.notes(partLogs)
}

// oomNotes returns the errors of the sources of OOM kills. It does not call the watcher: the
// watcher calls its observer with a lock held, and the observer may call oomNotes.
func (l *Loop) oomNotes() []string {
	if l.oom == nil {
		return []string{"the host has no source of OOM kills: OOM kills are not reported"}
	}
	if err := l.parts.err(partOOM); err != nil {
		return []string{err.Error()}
	}
	return nil
}
