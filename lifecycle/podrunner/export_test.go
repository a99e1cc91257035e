package podrunner

import (
	"os"
	"time"
)

// WithBinder returns s with other mounts than the system's, which needs rights
// for them.
func WithBinder(s SubPaths, bind func(*os.File, string) error, unbind func(string) error) SubPaths {
	s.bind, s.unbind = bind, unbind
	return s
}

// ParseEnd reads what is written about a pod that ends.
func ParseEnd(text []byte) (deadline time.Time, preStopped []string, err error) {
	rec, err := parseEnd(text)
	return rec.Deadline, rec.PreStopped, err
}

// EnforcedInMemory returns how many pods have a record of enforced resources in memory.
func (r *Runner) EnforcedInMemory() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.enforcements)
}

// PodsLocked returns how many pods have a cleaner.
func (r *Runner) PodsLocked() int { return r.clean.Len() }
