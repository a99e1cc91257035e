package podrunner

import (
	"os"
	"time"
)

// WithBinder returns s with replacements for the system's mount calls, which need privileges.
func WithBinder(s SubPaths, bind func(*os.File, string) error, unbind func(string) error) SubPaths {
	s.bind, s.unbind = bind, unbind
	return s
}

// ParseEnd parses a termination record.
func ParseEnd(text []byte) (deadline time.Time, preStopped []string, err error) {
	rec, err := parseTermination(text)
	return rec.Deadline, rec.PreStopped, err
}

// EnforcedInMemory returns the number of pods with a record of enforced resources in memory.
func (r *Runner) EnforcedInMemory() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.enforcements)
}

// PodsLocked returns how many pods are being cleaned up.
func (r *Runner) PodsLocked() int { return r.clean.Len() }
