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

// execProbe runs a command. What counts is what is known at the timeout; the
// runner is left alone until it returns or its grace is over, and meanwhile the
// command is not run again.
func (m *Manager) execProbe(ctx context.Context, p *probe, j *job) finding {
	if m.cfg.Runner == nil {
		m.landed(p, j.flight)
		j.flight.cancel()
		return finding{outcome: Errored, err: errors.New("no runner for exec probes")}
	}
	command, err := expand(j.spec.Exec.Command, j.container.Env)
	if err != nil {
		m.landed(p, j.flight)
		j.flight.cancel()
		return finding{outcome: Errored, err: err}
	}
	out, flight := &output{}, j.flight
	r := ExecRequest{
		ContainerID: j.target.ID, Command: command,
		Timeout: j.timing.timeout, Output: out,
	}
	timer := clock.RealClock{}.NewTimer(r.Timeout)
	defer timer.Stop()
	done := make(chan exited, 1)
	j.spawn(func() {
		code, err := m.cfg.Runner.Exec(ctx, r)
		m.landed(p, flight)
		done <- exited{code, err}
		flight.cancel()
	})
	select {
	case e := <-done:
		return execFinding(r, e, out.String())
	case <-ctx.Done():
		select {
		case e := <-done: // it has ended, which is why
			return execFinding(r, e, out.String())
		default: // it was cut short, and counts for nothing
		}
	case <-timer.C():
		m.outlived(ctx, j, r)
	}
	return finding{outcome: Failed, output: timedOut(r)}
}

// outlived gives the command its grace.
func (m *Manager) outlived(ctx context.Context, j *job, r ExecRequest) {
	end := clock.RealClock{}.AfterFunc(m.cfg.ExecGrace, j.flight.cancel)
	context.AfterFunc(ctx, func() { end.Stop() }) // it has ended before
	m.cfg.Observer.ExecOutlived(j.key)
	if killer := m.cfg.Killer; killer != nil {
		j.spawn(func() { killer.KillExec(ctx, r) })
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
