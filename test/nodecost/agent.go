package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// nodeName is what the agent appends to the names of its pods.
const nodeName = "n"

// agent is the process that is measured.
type agent struct {
	cmd     *exec.Cmd
	address string
	stderr  bytes.Buffer
	over    sync.WaitGroup // reads what it prints

	mu   sync.Mutex
	runs []change // each time a pod was said to run, with all containers ready
}

// ready is the line that the agent prints when a pod runs and all its containers are ready.
var ready = regexp.MustCompile(` default/(\S+)-` + nodeName + ` (?:\S+ -> )?Running ready=1/1`)

func startAgent(ctx context.Context, path string, args ...string) (*agent, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	a := &agent{cmd: exec.CommandContext(ctx, path, append(args, "--listen", address)...), address: address}
	a.cmd.Stderr = &a.stderr
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	a.over.Go(func() { a.read(out) })
	return a, nil
}

// freeAddress returns an address on which nobody listens.
func freeAddress() (string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return lis.Addr().String(), lis.Close()
}

func (a *agent) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := ready.FindStringSubmatch(lines.Text()); found != nil {
			a.mu.Lock()
			a.runs = append(a.runs, change{found[1], time.Now()})
			a.mu.Unlock()
		}
	}
}

// seen returns which pods were said to run, and when, so far.
func (a *agent) seen() []change {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]change(nil), a.runs...)
}

// stop ends the agent. What it printed as an error is part of the error.
func (a *agent) stop() error {
	err := a.cmd.Process.Signal(syscall.SIGTERM)
	a.over.Wait()
	if err := errors.Join(err, a.cmd.Wait()); err != nil {
		return fmt.Errorf("stop the agent: %w\n%s", err, a.stderr.String())
	}
	return nil
}

// cpu returns how long the agent has run on a processor.
func (a *agent) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// proc(5): the name is in parentheses, and may contain any; utime and stime are
	// fields 14 and 15, in ticks, of which Linux has 100 a second everywhere.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100, errors.Join(errUser, errSystem)
}

// rss returns how many bytes of the agent are in memory.
func (a *agent) rss() (float64, error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(statm))[1], 64)
	return pages * float64(os.Getpagesize()), err
}

// get returns a page of the agent.
func (a *agent) get(ctx context.Context, path string) (page []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.address+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// metric returns the value of one of the agent's metrics that has no labels.
func (a *agent) metric(ctx context.Context, name string) (float64, error) {
	page, err := a.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, fmt.Errorf("the agent has no metric %s", name)
}
