//go:build linux && hostile

package hostile

import (
	"bytes"
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
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
)

// agentVar is the variable with the path of an agent binary. If it is not set,
// examples/minimal-agent is built.
const agentVar = "KUBEPARTS_AGENT"

// tailBytes is the size of the agent's output that is kept.
const tailBytes = 64 << 10

// buildAgent returns the agent binary under test.
func buildAgent(dir string) (string, error) {
	if path := os.Getenv(agentVar); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(dir, "minimal-agent")
	cmd := exec.Command("go", "build", "-o", path, "../../examples/minimal-agent")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return path, nil
}

// output keeps the last part of the output of the agents of a run.
type output struct {
	mu   sync.Mutex
	tail []byte
	bad  string // a line of a crash that did not end the process
}

// Write keeps p.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, p...)
	if sign := "panic serving"; bytes.Contains(p, []byte(sign)) { // a panic of an HTTP handler
		o.bad = sign
	}
	if extra := len(o.tail) - tailBytes; extra > tailBytes {
		o.tail = append([]byte{}, o.tail[extra:]...)
	}
	return len(p), nil
}

// lines returns the last n lines, with long lines truncated.
func (o *output) lines(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := bytes.Split(bytes.TrimSpace(o.tail), []byte("\n"))
	var b strings.Builder
	for _, l := range all[max(0, len(all)-n):] {
		fmt.Fprintf(&b, "  | %.300q\n", l)
	}
	return b.String()
}

// crash returns the first output of a panic or race that did not end the process, or an
// empty string.
func (o *output) crash() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bad
}

// agent is one process of the agent.
type agent struct {
	cmd    *exec.Cmd
	addr   string
	client *http.Client
	began  time.Time
	exited chan struct{} // closed when the process has ended
	out    *output
}

// startAgent starts an agent and returns at once.
func startAgent(binary, addr string, out *output, args ...string) (*agent, error) {
	a := &agent{
		cmd: exec.Command(binary, append(args, "--listen", addr)...), addr: addr, began: time.Now(), exited: make(chan struct{}), out: out,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	a.cmd.Stdout, a.cmd.Stderr = out, out
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(a.exited)
		_ = a.cmd.Wait() // the exit code is in ProcessState
	}()
	return a, nil
}

// ended reports whether the process has ended. It waits for the end for at most the given
// time.
func (a *agent) ended(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-a.exited:
		return true
	case <-timer.C:
	}
	select { // the process may have exited too while this test had no CPU
	case <-a.exited:
		return true
	default:
		return false
	}
}

// kill kills the agent with SIGKILL.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill() // it has ended already
	<-a.exited
}

// get sends a request to the agent.
func (a *agent) get(path string, patience time.Duration) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.addr+path, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, body, errors.Join(err, response.Body.Close())
}

// running returns the names of the pods that the agent reports as running.
func (a *agent) running() (map[string]bool, error) {
	_, body, err := a.get("/pods", 5*time.Second)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("/pods: %w", err)
	}
	names := map[string]bool{}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase == corev1.PodRunning {
			names[p.Name] = true
		}
	}
	return names, nil
}

// use is the resource usage of a process.
type use struct{ memoryMiB, descriptors, goroutines int }

func (u use) most(v use) use {
	return use{max(u.memoryMiB, v.memoryMiB), max(u.descriptors, v.descriptors), max(u.goroutines, v.goroutines)}
}

// use returns the agent's current resource usage. Values that cannot be read, because the
// agent has just exited, are 0.
func (a *agent) use() (u use) {
	if process, err := procfs.NewProc(a.cmd.Process.Pid); err == nil {
		if stat, err := process.Stat(); err == nil {
			u.memoryMiB = stat.ResidentMemory() >> 20
		}
		u.descriptors, _ = process.FileDescriptorsLen()
	}
	if _, body, err := a.get("/debug/pprof/goroutine?debug=1", 5*time.Second); err == nil {
		first, _, _ := strings.Cut(string(body), "\n")
		u.goroutines, _ = strconv.Atoi(strings.TrimPrefix(first, "goroutine profile: total "))
	}
	return u
}

// waits returns how long each thread of a process has waited for a CPU. It is empty for a
// process that has exited.
func waits(pid int) map[int]time.Duration {
	all := map[int]time.Duration{}
	threads, _ := procfs.AllThreads(pid) // it has ended
	for _, thread := range threads {
		if stat, err := thread.Schedstat(); err == nil {
			all[thread.PID] = time.Duration(stat.WaitingNanoseconds)
		}
	}
	return all
}

// longestWait returns the longest time that one thread waited between before and after.
func longestWait(before, after map[int]time.Duration) (longest time.Duration) {
	for thread, total := range after {
		longest = max(longest, total-before[thread])
	}
	return longest
}

// freeAddress returns a loopback address that was free when it was checked. Its port is none that the
// kernel chooses for connections or listeners.
func freeAddress() (string, error) {
	var l net.Listener
	var err error
	for range 100 {
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", err
}
