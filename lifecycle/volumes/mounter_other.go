//go:build !linux

package volumes

import "errors"

// NewMounter returns the system's Mounter, for the mount namespace of this
// process. Mounting needs CAP_SYS_ADMIN. On systems other than Linux every call
// fails.
func NewMounter() Mounter { return system{} }

type system struct{}

// Tmpfs is not supported.
func (system) Tmpfs(string, int64) error { return errors.ErrUnsupported }

// Unmount is not supported.
func (system) Unmount(string) error { return errors.ErrUnsupported }

// Mounts is not supported.
func (system) Mounts() ([]MountPoint, error) { return nil, errors.ErrUnsupported }
