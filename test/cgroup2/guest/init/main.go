// Command init is pid 1 of the guest. It creates a root file system in memory, mounts the
// kernel's file systems and cgroup v2 with every controller enabled, runs one program with a
// time limit, writes the result to the first serial port, and powers off. The program's
// output goes to the second serial port.
//
// If a setting fails, init reports it and continues: the tests of the program report what is
// missing.
package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

func main() {
	host := openHost()
	host.try("root file system", moveToMemory())
	for _, m := range systemMounts() {
		host.try("mount "+m.target, m.do())
	}
	host.say("init uptime %s", uptime())
	go host.signOfLife()
	host.try("links in /dev", linkDescriptors())
	host.try("cgroup controllers", delegateControllers())
	host.try("loopback", loopbackUp())
	host.try("host name", syscall.Sethostname([]byte("cgroup2")))
	host.try("modules", loadModules())

	cfg, err := readConfig("/run.conf")
	host.try("/run.conf", err)
	host.try("disks and settings", cfg.apply())
	code := run(host, cfg)
	if cfg.outDevice != "" {
		host.try("/out", writeTar(cfg.outDevice, "/out"))
	}
	host.powerOff(code)
}

// run runs the program and returns its exit code: 128 plus the number of the signal that
// killed it, 124 after a timeout, 127 if it could not be started.
func run(host *host, cfg config) (code int) {
	tty, err := openSerial("/dev/ttyS1")
	if err != nil {
		host.try("output", err)
		tty = host.port
	}
	defer drain(tty)
	null, err := os.Open(os.DevNull)
	host.try("no input", err)
	if len(cfg.args) == 0 {
		host.say("nothing to run")
		return 127
	}
	host.say("start uptime %s", uptime())
	began := time.Now()
	program, err := os.StartProcess(cfg.args[0], cfg.args, &os.ProcAttr{
		Dir: cfg.dir, Env: cfg.env, Files: []*os.File{null, tty, tty},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		fmt.Fprintln(tty, err)
		return 127
	}
	over := make(chan struct{})
	limit := time.AfterFunc(cfg.timeout, func() {
		close(over)
		// A Go program prints the stacks of its goroutines.
		_ = syscall.Kill(-program.Pid, syscall.SIGQUIT)
		time.Sleep(5 * time.Second)
		killAll()
	})
	code = reap(program.Pid)
	if !limit.Stop() {
		<-over
		code = 124
	}
	host.say("end took %.3f", time.Since(began).Seconds())
	killAll()
	return code
}

// reap reaps all processes that exit, as pid 1 must, until pid has exited.
func reap(pid int) (code int) {
	for {
		var ws syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1
		case ended != pid:
		case ws.Signaled():
			return 128 + int(ws.Signal())
		default:
			return ws.ExitStatus()
		}
	}
}

func killAll() { _ = syscall.Kill(-1, syscall.SIGKILL) }
