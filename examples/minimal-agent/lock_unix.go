//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile takes the lock that path stands for and returns what gives it back.
// The kernel gives it back too when the process ends, however it ends.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another agent uses it (%s: %w)", path, err)
	}
	return f.Close, nil
}
