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
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// nodeName is the node's name, which the agent appends to the names of its pods.
const nodeName = "n"

// agent is the measured process.
type agent struct {
	cmd     *exec.Cmd
	address string
	stderr  bytes.Buffer
	over    sync.WaitGroup // waits for the goroutine that reads the output

	mu   sync.Mutex
	runs []change // each report of a running pod with all containers ready
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

// freeAddress returns an address on which no process listens.
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

// seen returns the reports of running pods so far, with their times.
func (a *agent) seen() []change {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]change(nil), a.runs...)
}

// stop stops the agent. Its error output is part of a returned error.
func (a *agent) stop() error {
	err := a.cmd.Process.Signal(syscall.SIGTERM)
	a.over.Wait()
	if err := errors.Join(err, a.cmd.Wait()); err != nil {
		return fmt.Errorf("stop the agent: %w\n%s", err, a.stderr.String())
	}
	return nil
}

// get returns the body of an HTTP response of the agent.
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

// metrics returns the values of the agent's metrics with these names. The metrics must have
// no labels.
func (a *agent) metrics(ctx context.Context, names ...string) (values []float64, err error) {
	page, err := a.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		_, rest, found := strings.Cut("\n"+string(page), "\n"+name+" ")
		if !found {
			return nil, fmt.Errorf("the agent has no metric %s", name)
		}
		text, _, _ := strings.Cut(rest, "\n")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("the agent's metric %s: %w", name, err)
		}
		values = append(values, value)
	}
	return values, nil
}
