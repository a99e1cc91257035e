// Command testserver is the workload of the test bed: one static binary that serves HTTP and
// gRPC, sleeps, ignores SIGTERM or exits, as a test needs it. It writes one line to stdout
// for each event.
//
//	testserver [serve] [flags]       serve HTTP (the default)
//	testserver sleep SECONDS         sleep, and exit with 0 on SIGTERM
//	testserver stubborn SECONDS      sleep, and ignore SIGTERM
//	testserver exit CODE [SECONDS]   exit with CODE after a while
//	testserver echo WORDS...         print the words
//	testserver hog                   allocate memory without end
//	testserver get URL               exit with 0 if the status is 200, otherwise 1
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

// exitUsage is the exit code for invalid arguments. Tests use other exit codes.
const exitUsage = 125

func main() {
	// Install the handler first: a Go program that is process 1 and receives SIGTERM before
	// the handler is installed exits with 2. On a busy machine, this would look like a
	// failure of the agent.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)

	code, err := run(os.Args[1:], signals)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		code = exitUsage
	}
	os.Exit(code)
}

// run returns the exit code, or an error for invalid arguments.
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
		return 0, fmt.Errorf("allocated %d MiB and was not killed", hog())
	default:
		return 0, fmt.Errorf("unknown command %q", name)
	}
}

// hog allocates and uses memory until the kernel kills the process. It returns the number of
// MiB if it reaches a TiB.
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

// rest waits for d. A signal ends the wait earlier if ignore is not set.
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

// seconds parses args[i] as a number of seconds.
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

// lastWords writes the termination message, if the pod has a file for it.
func lastWords(text string) {
	if err := os.WriteFile("/dev/termination-log", []byte(text), 0o600); err != nil {
		fmt.Println("no termination log:", err)
	}
}
