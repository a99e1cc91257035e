package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// mark is the beginning of the lines on the first serial port that the host reads.
const mark = "@@cgroup2 "

// host is the machine that booted this guest, at the other end of the first serial port.
type host struct{ port *os.File }

// openHost opens the first serial port. The kernel's first /dev contains only the console, so
// openHost temporarily mounts a devtmpfs there.
func openHost() *host {
	h := &host{port: os.Stdout}
	if err := (mount{"devtmpfs", "/dev", "devtmpfs", 0, "mode=0755"}).do(); err != nil {
		h.try("first /dev", err)
		return h
	}
	port, err := openSerial("/dev/ttyS0")
	if err == nil {
		h.port = port
	}
	h.try("first serial port", err)
	h.try("first /dev", syscall.Unmount("/dev", syscall.MNT_DETACH))
	return h
}

func (h *host) say(format string, args ...any) {
	fmt.Fprintf(h.port, "\r\n"+mark+format+"\r\n", args...)
}

// try reports a failed action in one line.
func (h *host) try(what string, err error) {
	if err != nil {
		h.say("%s: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// signOfLife sends a line to the host every 5 s.
func (h *host) signOfLife() {
	for range time.Tick(5 * time.Second) {
		h.say("alive uptime %s", uptime())
	}
}

func (h *host) powerOff(code int) {
	h.say("exit %d uptime %s", code, uptime())
	drain(h.port)
	syscall.Sync()
	h.try("power off", syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF))
	select {}
}

func uptime() string {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return err.Error()
	}
	seconds, _, _ := strings.Cut(string(b), " ")
	return seconds
}

// openSerial opens a serial port in raw mode.
func openSerial(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	var t syscall.Termios
	if err := ioctl(f, syscall.TCGETS, uintptr(unsafe.Pointer(&t))); err != nil {
		return f, err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	return f, ioctl(f, syscall.TCSETS, uintptr(unsafe.Pointer(&t)))
}

// drain waits until the port has sent all data, at most a second. Signals of the Go runtime
// interrupt the system call, so drain repeats it.
func drain(f *os.File) {
	const tcsbrk = 0x5409 // with argument 1: wait, and send no break
	for range 500 {
		var left int32
		err := ioctl(f, tcsbrk, 1)
		asked := ioctl(f, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&left)))
		if err == nil && asked == nil && left == 0 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // for the buffer of the emulated chip
}

func ioctl(f *os.File, request, arg uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, arg); errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}
