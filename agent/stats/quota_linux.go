package stats

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelQuotas reads project quotas of ext4, XFS, and other filesystems that support the
// same system calls.
type kernelQuotas struct{}

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is struct if_dqblk of linux/quota.h.
type dqblk struct {
	hardBytes, softBytes, usedBytes    uint64
	hardInodes, softInodes, usedInodes uint64
	bytesGrace, inodesGrace            uint64
	valid                              uint32
	_                                  uint32
}

const (
	// getXattr is FS_IOC_FSGETXATTR, _IOR('X', 31, struct fsxattr). The encoding of the
	// direction depends on the architecture.
	getXattr = unix.FS_IOC_GETFLAGS&0xe000_0000 | 28<<16 | 'X'<<8 | 31
	// inheritProject is FS_XFLAG_PROJINHERIT.
	inheritProject = 0x200
	// getProjectQuota is QCMD(Q_GETQUOTA, PRJQUOTA).
	getProjectQuota = 0x800007<<8 | 2
	// haveUsage is QIF_SPACE and QIF_INODES, the valid fields of a response.
	haveUsage = 2 | 8
)

func (kernelQuotas) project(dir string) (p project, inherited bool, err error) {
	fd, err := openDir(dir, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return p, false, err
	}
	defer func() { _ = unix.Close(fd) }() // read-only
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return p, false, &os.PathError{Op: "fstat", Path: dir, Err: err}
	}
	var x fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getXattr, uintptr(unsafe.Pointer(&x))); errno != 0 {
		return p, false, &os.PathError{Op: "FS_IOC_FSGETXATTR", Path: dir, Err: errno}
	}
	return project{s.Dev, x.projid}, x.xflags&inheritProject != 0, nil
}

// used requires Linux 5.14 and CAP_SYS_ADMIN, because it calls quotactl_fd. The older
// quotactl needs the filesystem's device file, which does not exist in the container of an
// agent.
func (kernelQuotas) used(dir string, id uint32) (bytes, inodes uint64, err error) {
	fd, err := openDir(dir, unix.O_PATH)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = unix.Close(fd) }() // read-only
	var q dqblk
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), getProjectQuota, uintptr(id), uintptr(unsafe.Pointer(&q)), 0, 0)
	if errno == 0 && q.valid&haveUsage != haveUsage {
		errno = unix.ENODATA
	}
	if errno != 0 {
		return 0, 0, &os.PathError{Op: "quotactl_fd", Path: dir, Err: errno}
	}
	return q.usedBytes, q.usedInodes, nil
}

func openDir(dir string, flags int) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(dir, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}
