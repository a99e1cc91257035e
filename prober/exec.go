package prober

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/expansion"
)

// maxOutput is the maximum number of bytes of output that a run uses, as in the kubelet.
const maxOutput = 10 << 10

// exitStatus is the result of a command.
type exitStatus struct {
	code int32
	err  error
}

// execProbe runs a command and returns the result when the command has ended or its timeout
// has passed. After the timeout the command may continue for ExecGrace. The probe does not
// run the command again before the command has ended.
func (m *Manager) execProbe(ctx context.Context, p *probe, r *run) finding {
	if m.cfg.Runner == nil {
		return finding{outcome: Errored, err: errors.New("exec probes are not supported by this agent")}
	}
	command, err := expand(r.spec.Exec.Command, r.container.Env)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	out := &output{}
	request := ExecRequest{ContainerID: r.target.ID, Command: command, Timeout: r.timing.timeout, Output: out}
	if r.outlived {
		return finding{outcome: Failed, output: timedOut(request) + ", and the command is still running"}
	}
	timer := clock.RealClock{}.NewTimer(request.Timeout)
	defer timer.Stop()
	done := make(chan exitStatus, 1)
	r.spawn(func() {
		code, err := m.cfg.Runner.Exec(ctx, request)
		done <- exitStatus{code, err}
		m.commandEnded(p, r)
	})
	select {
	case e := <-done:
		return execFinding(request, e, out.String())
	case <-ctx.Done(): // cancelled: the result is not counted
	case <-timer.C():
		if m.startGrace(ctx, p, r, done) {
			m.cfg.Observer.ExecOutlived(r.key)
			if killer := m.cfg.Killer; killer != nil {
				r.spawn(func() { killer.KillExec(ctx, request) })
			}
		}
	}
	return finding{outcome: Failed, output: timedOut(request)}
}

// startGrace starts the grace period of r's command, which has reached its timeout. It returns
// false and does nothing if the command has just ended, or the run was cancelled.
func (m *Manager) startGrace(ctx context.Context, p *probe, r *run, done chan exitStatus) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil || len(done) > 0 {
		return false
	}
	p.command = r
	end := clock.RealClock{}.AfterFunc(m.cfg.ExecGrace, r.cancel)
	context.AfterFunc(ctx, func() { end.Stop() })
	return true
}

// commandEnded allows p to run its command again if the command of r outlived its run.
func (m *Manager) commandEnded(p *probe, r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.command == r {
		p.command = nil
		r.cancel()
	}
}

// cancelCommand cancels the command of an earlier run if it is still running.
func (m *Manager) cancelCommand(p *probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.command != nil {
		p.command.cancel()
		p.command = nil
	}
}

// execFinding returns the result of a run. e is the result of the run's command.
func execFinding(r ExecRequest, e exitStatus, output string) finding {
	switch {
	case e.err == nil && e.code == 0:
		return finding{outcome: Succeeded, output: output}
	case e.err == nil:
		return finding{outcome: Failed, output: output}
	case errors.Is(e.err, context.DeadlineExceeded):
		return finding{outcome: Failed, output: timedOut(r)}
	default:
		return finding{outcome: Errored, output: output, err: e.err}
	}
}

// timedOut returns the kubelet's text for a command that has timed out.
func timedOut(r ExecRequest) string {
	return fmt.Sprintf("command timed out: %q timed out after %s",
		strings.Join(r.Command, " "), r.Timeout.Round(time.Millisecond))
}

// output stores the first maxOutput bytes that are written to it.
type output struct {
	mu   sync.Mutex // a command that outlived its run may still write
	data []byte
}

// Write never fails.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, b[:min(len(b), maxOutput-len(o.data))]...)
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.data)
}

// expand replaces each $(NAME) in a command with the value of that variable in the
// container's spec. The value is empty if the variable uses valueFrom. expand replaces $$
// with $, and does not replace a reference to an unknown variable. It returns an error if
// the expanded command is too long to be run.
func expand(command []string, env []corev1.EnvVar) ([]string, error) {
	expanded, left := command, expansion.MaxBytes
	for i, arg := range command {
		if strings.Contains(arg, "$") {
			if &expanded[0] == &command[0] {
				expanded = slices.Clone(command)
			}
			text, ok := expansion.Expand(arg, left, func(name string) string { return valueOf(name, env) })
			if !ok {
				return nil, expansion.ErrTooLong{What: "command of exec probe"}
			}
			expanded[i] = text
		}
		left -= len(expanded[i])
	}
	return expanded, nil
}

// valueOf returns the value of the last variable of this name, or the reference itself if
// the variable does not exist.
func valueOf(name string, env []corev1.EnvVar) string {
	for _, e := range slices.Backward(env) {
		if e.Name == name {
			return e.Value
		}
	}
	return "$(" + name + ")"
}
