package volumes

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// NewMounter returns the system's Mounter, for the mount namespace of this
// process. Mounting needs CAP_SYS_ADMIN. On systems other than Linux every call
// fails.
func NewMounter() Mounter { return system{} }

type system struct{}

// Tmpfs mounts a tmpfs. Since Linux 6.4, the kernel does not swap out the pages
// of this tmpfs.
func (system) Tmpfs(target string, sizeBytes int64) error {
	options := "mode=0600"
	if sizeBytes > 0 {
		options += fmt.Sprintf(",size=%d", sizeBytes)
	}
	err := unix.Mount("tmpfs", target, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", target, "tmpfs", 0, options)
	}
	if err != nil {
		return &os.PathError{Op: "mount tmpfs on", Path: target, Err: err}
	}
	return nil
}

// Unmount unmounts target and does not follow links. It returns nil if nothing
// is mounted on target.
func (s system) Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if err == nil {
		return nil
	}
	mounts, errList := s.Mounts()
	if errList == nil && !slices.ContainsFunc(mounts, func(m MountPoint) bool { return m.Target == target }) {
		return nil // umount(2) has no separate error for this case
	}
	return errors.Join(&os.PathError{Op: "unmount", Path: target, Err: err}, errList)
}

// Mounts reads the mounts of this process's mount namespace.
func (system) Mounts() (mounts []MountPoint, err error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return ParseMountInfo(file)
}
