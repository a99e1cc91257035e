//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// agent is one running agent process.
type agent struct {
	cmd    *exec.Cmd
	addr   string
	output *output
	exited chan struct{} // closed when the process has exited
	err    error         // result of the process; valid after exited is closed
	// awaited means that the test has waited for the exit of the process.
	awaited atomic.Bool
}

// output records the output of a process. It is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// linesWith counts the lines with a word.
func (o *output) linesWith(word string) int {
	n := 0
	for line := range strings.Lines(o.String()) {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}

// startAgent starts the agent binary and returns at once.
func startAgent(addr string, out *output, args ...string) (*agent, error) {
	a := &agent{
		cmd: exec.Command(os.Getenv(agentVar), args...), addr: addr, output: out, exited: make(chan struct{}),
	}
	a.cmd.Stdout, a.cmd.Stderr = out, out
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(a.exited)
		// A non-zero exit code is an error here. The test decides whether it is expected.
		a.err = a.cmd.Wait()
	}()
	return a, nil
}

// over reports whether the process has exited.
func (a *agent) over() bool {
	select {
	case <-a.exited:
		return true
	default:
		return false
	}
}

// wait returns the exit code, -1 after a signal.
func (a *agent) wait(timeout time.Duration) (int, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-a.exited:
		a.awaited.Store(true)
		return a.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("the agent is still running after %v", timeout)
	}
}

// stop sends SIGTERM to the agent and requires that it exits with code 0.
func (a *agent) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	code, err := a.wait(30 * time.Second)
	require.NoError(t, err)
	require.Zero(t, code, "exit code of the agent")
}

// kill kills the agent with SIGKILL.
func (a *agent) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, a.cmd.Process.Kill())
	_, err := a.wait(10 * time.Second)
	require.NoError(t, err)
}

// get sends an HTTP request to the agent.
func (a *agent) get(path string) (code int, body string, err error) {
	if a.over() {
		return 0, "", fmt.Errorf("the agent has ended: %w", cmp.Or(a.err, errors.New("exit status 0")))
	}
	return httpGet("http://" + a.addr + path)
}

// health returns a condition on the response of /readyz. /healthz tolerates a runtime that
// does not respond for a while.
func (a *agent) health(accept func(code int, body string) bool) condition {
	return func() (string, bool) {
		code, body, err := a.get("/readyz")
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d %s", code, body), accept(code, body)
	}
}

// pods returns the pods as the agent reports them.
func (a *agent) pods() ([]corev1.Pod, error) {
	code, body, err := a.get("/pods")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("/pods: %d %s", code, body)
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return nil, fmt.Errorf("/pods: %w", err)
	}
	return list.Items, nil
}

func httpGet(url string) (code int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), errors.Join(err, response.Body.Close())
}

// given is the set of addresses that freeAddr has returned.
var given sync.Map

// randomPort returns a port that the kernel does not choose for connections or listeners.
func randomPort() string { return strconv.Itoa(20_000 + rand.IntN(10_000)) }

// freeAddr returns a loopback address that was free when it was checked. It returns each
// address to one test only.
func freeAddr(t *testing.T) string {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:"+randomPort())
		if err != nil {
			continue // another process uses the port
		}
		require.NoError(t, listener.Close())
		if _, taken := given.LoadOrStore(listener.Addr().String(), true); !taken {
			return listener.Addr().String()
		}
	}
}
