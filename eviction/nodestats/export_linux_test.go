package nodestats

import (
	"time"

	"golang.org/x/sys/unix"
)

// OpenTrigger asks for a trigger that Config does not allow, and lets go of it.
func OpenTrigger(path string, stall, window time.Duration) error {
	fd, err := openTrigger(path, pressureTrigger{stall, window})
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
