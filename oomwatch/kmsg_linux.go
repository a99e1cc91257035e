package oomwatch

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// openKmsg opens the log in non-blocking mode, so that a deadline or Close interrupts a
// Read.
func openKmsg() (KmsgLog, error) {
	return os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0 // does not happen: every Linux has this clock
	}
	return time.Duration(now.Nano())
}
