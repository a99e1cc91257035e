package stats

import (
	"context"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// IsMemory reports whether a path is on an in-memory filesystem.
func IsMemory(path string) bool { return isMemory(path) }

// Blocks returns the disk usage of a file or directory in bytes, without the entries of the
// directory.
func Blocks(path string) (int64, error) {
	var s unix.Stat_t
	err := unix.Lstat(path, &s)
	return s.Blocks * 512, err
}

// TryTrigger opens and closes exactly this pressure trigger.
func TryTrigger(path string, stall, window time.Duration) error {
	fd, err := tryTrigger(path, pressureTrigger{stall, window})
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// OpenTrigger opens and closes a pressure trigger, or its unprivileged variant. Config may
// reject the same values.
func OpenTrigger(path string, stall, window time.Duration) error {
	fd, err := openTrigger(path, pressureTrigger{stall, window})
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// Walk walks over a directory. remember replaces maxPending.
func Walk(ctx context.Context, path string, remember int) (bytes, inodes uint64, err error) {
	w, err := newWalk(path)
	if err != nil {
		return 0, 0, err
	}
	w.remember = remember
	_, _, err = w.advance(ctx, 1<<20)
	return w.bytes, w.found(), err
}

// SetProject assigns a project ID to a directory. New files inherit it, as in directories
// that the kubelet creates.
func SetProject(dir string, id uint32) error {
	fd, err := openDir(dir, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// FS_IOC_FSSETXATTR, _IOW('X', 32, struct fsxattr).
	const setXattr = unix.FS_IOC_SETFLAGS&0xe000_0000 | 28<<16 | 'X'<<8 | 32
	x := fsxattr{xflags: inheritProject, projid: id}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), setXattr, uintptr(unsafe.Pointer(&x))); errno != 0 {
		return &os.PathError{Op: "FS_IOC_FSSETXATTR", Path: dir, Err: errno}
	}
	return nil
}
