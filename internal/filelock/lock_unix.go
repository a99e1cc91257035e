//go:build unix

package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock creates the file if it does not exist, locks it, and returns what unlocks it. If
// another process or another caller of this one holds the lock, the error reports so at
// once. The kernel unlocks the file when the process ends, however it ends.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another agent uses it (%s: %w)", path, err), f.Close())
	}
	return f.Close, nil
}
