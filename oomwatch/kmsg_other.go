//go:build !linux

package oomwatch

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

func openKmsg() (KmsgLog, error) {
	return nil, fmt.Errorf("/dev/kmsg on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func bootID() (string, error) {
	return "", fmt.Errorf("boot id on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func monotonic() time.Duration { return 0 }
