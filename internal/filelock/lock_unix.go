//go:build unix

package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock creates the file if it does not exist, locks the file, and returns a function that
// unlocks the file. If another process, or another caller in this process, holds the lock,
// Lock returns an error at once. The kernel unlocks the file when the process ends for any
// reason.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another agent uses this folder (lock file %s: %w)", path, err), f.Close())
	}
	return f.Close, nil
}
