package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

type mount struct {
	source, target, kind string
	flags                uintptr
	options              string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	return syscall.Mount(m.source, m.target, m.kind, m.flags, m.options)
}

const cgroupRoot = "/sys/fs/cgroup"

func systemMounts() []mount {
	const (
		noSuid = syscall.MS_NOSUID
		data   = noSuid | syscall.MS_NODEV
		system = data | syscall.MS_NOEXEC
	)
	return []mount{
		{"proc", "/proc", "proc", system, ""},
		{"sysfs", "/sys", "sysfs", system, ""},
		{"devtmpfs", "/dev", "devtmpfs", noSuid, "mode=0755"},
		{"devpts", "/dev/pts", "devpts", 0, "mode=0620,gid=5,ptmxmode=0666"},
		{"tmpfs", "/dev/shm", "tmpfs", data, "mode=1777"},
		{"tmpfs", "/run", "tmpfs", data, "mode=0755"},
		{"tmpfs", "/tmp", "tmpfs", data, "mode=1777"},
		// systemd uses the same mount options.
		{"cgroup2", cgroupRoot, "cgroup2", system, "nsdelegate,memory_recursiveprot"},
	}
}

// moveToMemory copies everything into a tmpfs and makes it the root. The kernel does not
// permit pivot_root, which container runtimes use, on its first root.
func moveToMemory() error {
	const root = "/.root"
	if err := (mount{"tmpfs", root, "tmpfs", 0, "mode=0755,size=90%"}).do(); err != nil {
		return err
	}
	var folders []string
	err := filepath.WalkDir("/", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || path == "/":
			return err
		case path == root || path == "/dev":
			return fs.SkipDir
		case entry.IsDir():
			folders = append(folders, path)
			return os.Mkdir(root+path, 0o755)
		default:
			return moveFile(path, root+path, entry)
		}
	})
	for _, folder := range slices.Backward(folders) {
		err = errors.Join(err, os.Remove(folder))
	}
	return errors.Join(err,
		os.Chdir(root),
		syscall.Mount(".", "/", "", syscall.MS_MOVE, ""),
		syscall.Chroot("."),
		os.Chdir("/"))
}

// moveFile removes the original after the copy, because the memory is too small for both
// roots.
func moveFile(from, to string, entry fs.DirEntry) error {
	switch {
	case entry.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return errors.Join(os.Symlink(target, to), os.Remove(from))
	case entry.Type().IsRegular():
		return errors.Join(copyFile(from, to), os.Remove(from))
	default:
		return nil
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func linkDescriptors() error {
	err := os.Symlink("/proc/self/fd", "/dev/fd")
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		err = errors.Join(err, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", i), "/dev/"+name))
	}
	return err
}

// delegateControllers enables every controller for the root's children.
func delegateControllers() error {
	controllers, err := os.ReadFile(cgroupRoot + "/cgroup.controllers")
	for name := range strings.FieldsSeq(string(controllers)) {
		err = errors.Join(err, os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte("+"+name), 0))
	}
	return err
}

func loopbackUp() error {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(s)
	var request struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "lo")
	request.flags = syscall.IFF_UP | syscall.IFF_RUNNING
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(s), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return os.NewSyscallError("SIOCSIFFLAGS", errno)
	}
	return nil
}

// loadModules loads the modules that mkcpio listed, in that order.
func loadModules() error {
	list, err := os.ReadFile("/modules.list")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for name := range strings.FieldsSeq(string(list)) {
		err = errors.Join(err, loadModule(name))
	}
	return err
}

func loadModule(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	const finitModule = 313
	var noParameters byte
	_, _, errno := syscall.Syscall(finitModule, f.Fd(), uintptr(unsafe.Pointer(&noParameters)), 0)
	if errno != 0 && errno != syscall.EEXIST {
		return fmt.Errorf("load %s: %w", name, errno)
	}
	return nil
}
