// Command testserver is the workload of the test bed: one static binary that
// serves HTTP and gRPC, sleeps, ignores SIGTERM or exits, as a test needs it. It says on
// stdout what happens to it, one line each.
//
//	testserver [serve] [flags]       serve HTTP (the default)
//	testserver sleep SECONDS         sleep, ending with 0 on SIGTERM
//	testserver stubborn SECONDS      sleep, ignoring SIGTERM
//	testserver exit CODE [SECONDS]   exit with CODE after a while
//	testserver echo WORDS...         print them
//	testserver hog                   take memory without end
//	testserver get URL               0 if the answer is 200, else 1
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// exitUsage is the exit code of a wrong call, to be told from a test's own codes.
const exitUsage = 125

func main() {
	// First of all: a Go program that is process 1 and gets SIGTERM before this
	// exits with 2, which looks like a failure of the agent on a busy machine.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)

	code, err := run(os.Args[1:], signals)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		code = exitUsage
	}
	os.Exit(code)
}

// run returns the exit code, or what was wrong with the call.
func run(args []string, signals <-chan os.Signal) (int, error) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		args = append([]string{"serve"}, args...)
	}
	name, args := args[0], args[1:]
	switch name {
	case "serve":
		return serve(args, signals)
	case "sleep", "stubborn":
		d, err := seconds(args, 0)
		if err == nil {
			rest(d, signals, name == "stubborn")
		}
		return 0, err
	case "exit":
		return exit(args, signals)
	case "get":
		return get(args)
	case "echo":
		fmt.Println(strings.Join(args, " "))
		return 0, nil
	case "hog":
		return 0, fmt.Errorf("the kernel gave %d MiB and killed nobody", hog())
	default:
		return 0, fmt.Errorf("unknown command %q", name)
	}
}

// hog takes memory, and uses it, until the kernel has had enough. It returns
// how many MiB it has if that is a TiB.
func hog() int {
	var all [][]byte
	for len(all) < 1<<20 {
		all = append(all, bytes.Repeat([]byte{1}, 1<<20))
	}
	return len(all)
}

func exit(args []string, signals <-chan os.Signal) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("exit needs a code")
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return 0, fmt.Errorf("exit code: %w", err)
	}
	if len(args) > 1 {
		d, err := seconds(args, 1)
		if err != nil {
			return 0, err
		}
		rest(d, signals, false)
	}
	lastWords("exit " + args[0])
	return code, nil
}

// rest waits for d, or until a signal that is not ignored.
func rest(d time.Duration, signals <-chan os.Signal, ignore bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case s := <-signals:
			fmt.Println("signal", s)
			if !ignore {
				return
			}
		case <-timer.C:
			return
		}
	}
}

// seconds reads args[i] as a number of seconds.
func seconds(args []string, i int) (time.Duration, error) {
	if len(args) <= i {
		return 0, errors.New("a number of seconds is missing")
	}
	n, err := strconv.ParseFloat(args[i], 64)
	if err != nil {
		return 0, fmt.Errorf("seconds: %w", err)
	}
	return time.Duration(n * float64(time.Second)), nil
}

// lastWords leaves the termination message. A pod need not have a place for it.
func lastWords(text string) {
	if err := os.WriteFile("/dev/termination-log", []byte(text), 0o600); err != nil {
		fmt.Println("no termination log:", err)
	}
}
