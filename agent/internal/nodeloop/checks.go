package nodeloop

import (
	"fmt"
	"sync"
)

// Names of checks.
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
	p.errs = map[string]error{partRuntime: ErrNotAsked}
}

// record replaces the last error of a part, nil if it has none. A change is reported to
// Config.Changed without a lock held.
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

// notes returns the last error of a part that works in passes. It is no error of the part:
// another pass follows.
func (p *parts) notes(name string) []string {
	if err := p.err(name); err != nil {
		return []string{"the last pass failed: " + err.Error()}
	}
	return nil
}

// Checks returns the state of each part, always in the same order: what the others depend
// on comes first.
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

// evictionNotes returns the pressure on the node and what could not be measured.
func (l *Loop) evictionNotes() (notes []string) {
	if l.cfg.Host.Stats == nil {
		return []string{"the host measures nothing: no pod is evicted"}
	}
	for _, c := range l.pressure.conditions() {
		notes = append(notes, string(c))
	}
	if err := l.parts.err(partEviction); err != nil {
		notes = append(notes, "some figures are missing: "+err.Error())
	}
	return notes
}

func (l *Loop) logNotes() []string {
	if l.logs == nil {
		return []string{"no folder of pod logs is configured: logs are neither rotated nor removed"}
	}
	return l.parts.notes(partLogs)
}

// oomNotes returns why sources of OOM kills have failed. It does not call the watcher, which
// calls its observer with a lock held.
func (l *Loop) oomNotes() []string {
	if l.oom == nil {
		return []string{"the host has no source of OOM kills: none is reported"}
	}
	if err := l.parts.err(partOOM); err != nil {
		return []string{err.Error()}
	}
	return nil
}
