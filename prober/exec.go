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

// maxOutput is how much of what a container says is read, as in the kubelet.
const maxOutput = 10 << 10

// exited is how a command ended.
type exited struct {
	code int32
	err  error
}

// execProbe runs a command. What counts is what is known at the timeout. After it, the
// command has its grace to end, and meanwhile is not run again.
func (m *Manager) execProbe(ctx context.Context, p *probe, r *run) finding {
	if m.cfg.Runner == nil {
		return finding{outcome: Errored, err: errors.New("no runner for exec probes")}
	}
	command, err := expand(r.spec.Exec.Command, r.container.Env)
	if err != nil {
		return finding{outcome: Errored, err: err}
	}
	out := &output{}
	request := ExecRequest{ContainerID: r.target.ID, Command: command, Timeout: r.timing.timeout, Output: out}
	if r.outlived {
		return finding{outcome: Failed, output: timedOut(request) + ", and has not ended since"}
	}
	timer := clock.RealClock{}.NewTimer(request.Timeout)
	defer timer.Stop()
	done := make(chan exited, 1)
	r.spawn(func() {
		code, err := m.cfg.Runner.Exec(ctx, request)
		done <- exited{code, err}
		m.commandEnded(p, r)
	})
	select {
	case e := <-done:
		return execFinding(request, e, out.String())
	case <-ctx.Done(): // it was cut short, and counts for nothing
	case <-timer.C():
		m.outlive(ctx, p, r, request, done)
	}
	return finding{outcome: Failed, output: timedOut(request)}
}

// outlive gives the command of r its grace.
func (m *Manager) outlive(ctx context.Context, p *probe, r *run, request ExecRequest, done chan exited) {
	m.mu.Lock()
	if ctx.Err() == nil && len(done) == 0 {
		p.command = r
		end := clock.RealClock{}.AfterFunc(m.cfg.ExecGrace, r.cancel)
		context.AfterFunc(ctx, func() { end.Stop() })
	}
	m.mu.Unlock()
	m.cfg.Observer.ExecOutlived(r.key)
	if killer := m.cfg.Killer; killer != nil {
		r.spawn(func() { killer.KillExec(ctx, request) })
	}
}

// commandEnded lets p run its command again if that of r outlived its run.
func (m *Manager) commandEnded(p *probe, r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.command == r {
		p.command = nil
		r.cancel()
	}
}

// endCommand ends the command that an earlier run left behind, if any.
func (m *Manager) endCommand(p *probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.command != nil {
		p.command.cancel()
		p.command = nil
	}
}

// execFinding says what the end of a command means.
func execFinding(r ExecRequest, e exited, output string) finding {
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

// timedOut is the kubelet's text for a command that took too long.
func timedOut(r ExecRequest) string {
	return fmt.Sprintf("command timed out: %q timed out after %s",
		strings.Join(r.Command, " "), r.Timeout.Round(time.Millisecond))
}

// output keeps the beginning of what is written to it.
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

// expand replaces each $(NAME) in a command by the value that the container's spec
// has for it, which is nothing for those that come from elsewhere. $$ is a dollar,
// and what is not known stays as it is. A command too long to be run is an error.
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

// valueOf returns the value of the last variable of this name, and the reference
// itself if there is none.
func valueOf(name string, env []corev1.EnvVar) string {
	for _, e := range slices.Backward(env) {
		if e.Name == name {
			return e.Value
		}
	}
	return "$(" + name + ")"
}
