package podrunner

import "os"

// WithBinder returns s with other mounts than the system's, which needs rights
// for them.
func WithBinder(s SubPaths, bind func(*os.File, string) error, unbind func(string) error) SubPaths {
	s.bind, s.unbind = bind, unbind
	return s
}
