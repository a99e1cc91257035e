package main

import (
	"archive/tar"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// config is the configuration of this run, written by run.sh.
type config struct {
	timeout   time.Duration
	dir       string
	args, env []string
	outDevice string
	// disks are "device directory", sysctls "name=value".
	disks, swaps, sysctls []string
}

// readConfig reads lines that consist of a name, a space and a value. Values that can contain
// any bytes are hexadecimal.
func readConfig(name string) (config, error) {
	c := config{
		timeout: 2 * time.Minute,
		dir:     "/",
		env:     []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/root", "TMPDIR=/tmp", "CGROUP2_LAB=1"},
	}
	content, err := os.ReadFile(name)
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		err = errors.Join(err, c.set(key, value))
	}
	return c, err
}

func (c *config) set(key, value string) error {
	switch key {
	case "timeout":
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return err
		}
		c.timeout = time.Duration(seconds * float64(time.Second))
	case "arghex", "envhex":
		plain, err := hex.DecodeString(value)
		if err != nil {
			return err
		}
		if key == "arghex" {
			c.args = append(c.args, string(plain))
		} else {
			c.env = append(c.env, string(plain))
		}
	case "dir":
		c.dir = value
	case "disk":
		c.disks = append(c.disks, value)
	case "swap":
		c.swaps = append(c.swaps, value)
	case "out":
		c.outDevice = value
	case "sysctl":
		c.sysctls = append(c.sysctls, value)
	default:
		return fmt.Errorf("unknown setting %q", key)
	}
	return nil
}

// apply prepares the machine for the program.
func (c *config) apply() (err error) {
	try := func(e error) { err = errors.Join(err, e) }
	try(os.MkdirAll("/out", 0o1777))
	try(os.MkdirAll("/root", 0o700))
	try(os.MkdirAll(c.dir, 0o755))
	for _, disk := range c.disks {
		device, folder, _ := strings.Cut(disk, " ")
		try(waitFor(device))
		try(mount{device, folder, "ext4", 0, "prjquota"}.do())
	}
	for _, device := range c.swaps {
		try(waitFor(device))
		try(swapOn(device))
	}
	for _, setting := range c.sysctls {
		name, value, _ := strings.Cut(setting, "=")
		try(os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0))
	}
	return err
}

// waitFor waits until the kernel has detected a device.
func waitFor(device string) error {
	for range 500 {
		if _, err := os.Stat(device); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("no %s after 5 s", device)
}

func swapOn(device string) error {
	path, err := syscall.BytePtrFromString(device)
	if err != nil {
		return err
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_SWAPON, uintptr(unsafe.Pointer(path)), 0, 0); errno != 0 {
		return fmt.Errorf("swapon %s: %w", device, errno)
	}
	return nil
}

// writeTar writes the directory to the device as a tar archive, which the host unpacks.
func writeTar(device, folder string) error {
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	return errors.Join(w.AddFS(os.DirFS(folder)), w.Close(), f.Sync(), f.Close())
}
