//go:build unix

package volumes

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the owner of a file, -1 if it is unknown.
func ownerOf(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return -1, -1
}

// onOtherDevices reports whether two files are known to be on different
// devices.
func onOtherDevices(a, b fs.FileInfo) bool {
	first, ok := a.Sys().(*syscall.Stat_t)
	second, too := b.Sys().(*syscall.Stat_t)
	return ok && too && first.Dev != second.Dev
}
