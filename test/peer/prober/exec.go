package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	remote "k8s.io/cri-client/pkg"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A shell is an exec probe that runs a few times.
type shell struct {
	Command   []string
	Env       []corev1.EnvVar
	Timeout   int32
	NoHandler bool
	NoRunner  bool // our manager has no command runner
	Runs      []command
}

// A command is the result of the command in one run.
type command struct {
	Stdout, Stderr string
	Code           int32
	Err            string        // the runtime's error, if it cannot run the command
	Takes          time.Duration // far from the timeout
	Hangs          bool          // the runtime ignores the timeout
}

func drawShell(d *judge.Draw) shell {
	w := shell{Timeout: int32(d.Between(1, 3))}
	for range d.Between(1, 4) {
		w.Command = append(w.Command, judge.Pick(d, "check", "a b", "$(A)", "x$(A)y$(B)z", "$$(A)", "$(NONE)", "$(", "$", "$$", "$(A", "$(A)$(A)", "", "$A", "$((A))", "$()", "ü$(B)", "a$", "$$$(A)"))
	}
	for range d.Int(4) {
		e := corev1.EnvVar{Name: judge.Pick(d, "A", "B", "NONE?", ""), Value: judge.Pick(d, "one", "", "$(B)", "two words", "$$")}
		if d.Chance(20) {
			e.Value, e.ValueFrom = "", &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		}
		w.Env = append(w.Env, e)
	}
	w.NoHandler = d.Chance(3)
	w.NoRunner = d.Chance(3)
	for range d.Between(1, 3) {
		c := command{
			Stdout: text(judge.Pick(d, 0, 3, 5000, 10<<10-1, 10<<10, 10<<10+1, 20000)),
			Stderr: judge.Pick(d, "", "oops", text(6000), "\x00\xff"),
			Code:   judge.Pick[int32](d, 0, 0, 1, 2, 126, 127, 137, -1),
			Takes:  time.Duration(judge.Pick(d, 0, 1, 500, 900)) * time.Millisecond,
		}
		switch {
		case d.Chance(10):
			c.Err = judge.Pick(d, "rpc error: code = Unavailable desc = gone", "context canceled", "no such container")
		case d.Chance(10):
			c.Takes = time.Duration(judge.Pick(d, 3500, 60000)) * time.Millisecond
		case d.Chance(5):
			c.Hangs = true
		}
		w.Runs = append(w.Runs, c)
	}
	return w
}

func (w shell) pod() *corev1.Pod {
	probe := &corev1.Probe{TimeoutSeconds: w.Timeout, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	if !w.NoHandler {
		probe.Exec = &corev1.ExecAction{Command: w.Command}
	}
	return onePod(probe, nil, w.Env...)
}

// shellLasts is longer than a run of either side, including the extra time for a runtime that
// hangs.
const shellLasts = 5 * time.Minute

// A shellRunner runs commands for both sides.
type shellRunner struct {
	now      command
	commands []string
}

func (r *shellRunner) note(id string, args []string, timeout time.Duration) {
	r.commands = append(r.commands, fmt.Sprintf("%s %q %s", id, args, timeout))
}

// RunInContainer is called by the kubelet. It converts the runtime's response as the kubelet
// does.
func (r *shellRunner) RunInContainer(_ context.Context, id kubecontainer.ContainerID, args []string, timeout time.Duration) ([]byte, error) {
	r.note(id.ID, args, timeout)
	late := fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, strings.Join(args, " "), timeout)
	switch c := r.now; {
	case c.Hangs:
		time.Sleep(2*time.Minute + timeout)
		return nil, late
	case c.Takes > timeout:
		time.Sleep(timeout)
		return nil, late
	case c.Err != "":
		time.Sleep(c.Takes)
		return nil, errors.New(c.Err)
	case c.Code != 0:
		time.Sleep(c.Takes)
		return []byte(c.Stdout + c.Stderr), utilexec.CodeExitError{Err: errors.New("it exited"), Code: int(c.Code)}
	default:
		time.Sleep(c.Takes)
		return []byte(c.Stdout + c.Stderr), nil
	}
}

// Exec is called by our manager.
func (r *shellRunner) Exec(ctx context.Context, e prober.ExecRequest) (int32, error) {
	r.note(e.ContainerID, e.Command, e.Timeout)
	c := r.now
	switch {
	case c.Hangs:
		<-ctx.Done()
		return 0, ctx.Err()
	case c.Takes > e.Timeout:
		time.Sleep(e.Timeout + time.Second/10)
		return 0, context.DeadlineExceeded
	case c.Err != "":
		time.Sleep(c.Takes)
		return 0, errors.New(c.Err)
	}
	half := len(c.Stdout) / 2
	for _, part := range []string{c.Stdout[:half], c.Stdout[half:], c.Stderr} {
		_, _ = io.WriteString(e.Output, part) // it never fails
	}
	time.Sleep(c.Takes)
	return c.Code, nil
}

// playShell plays a world with either side.
func playShell(side func(*testing.T, shell, *shellRunner) (run func() (result, text string), end func())) func(*testing.T, shell) []judge.Facts {
	return func(t *testing.T, w shell) (all []judge.Facts) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := &shellRunner{}
			run, end := side(t, w, r)
			for _, c := range w.Runs {
				time.Sleep(2 * time.Second)
				began := time.Now()
				r.now, r.commands = c, nil
				result, text := run()
				all = append(all, found(result, text, r.commands))
				time.Sleep(shellLasts - time.Since(began))
			}
			end()
		})
		return all
	}
}

func shellKubelet(_ *testing.T, w shell, r *shellRunner) (run func() (result, text string), end func()) {
	p, pod := newKubeletProber(r), w.pod()
	return func() (string, string) { return p.run(pod, podIP) }, func() {}
}

func shellOurs(t *testing.T, w shell, r *shellRunner) (run func() (result, text string), end func()) {
	t.Helper()
	cfg := prober.Config{HistoryBytes: 40000}
	if !w.NoRunner {
		cfg.Runner = r
	}
	p := newOurProber(t, cfg, w.pod(), podIP)
	return p.run, p.close
}

// shellRules are the rules of prober/exec.
func shellRules() []judge.Rule[shell] {
	return []judge.Rule[shell]{{
		Name: "exec probe without a Runner", Class: judge.Deliberate, Doc: inDoc,
		Sentence: "The kubelet can always run commands; here an exec probe without a Runner is an error.",
		Explains: func(s judge.Scene[shell]) bool {
			if !s.World.NoRunner || s.World.NoHandler {
				return false
			}
			return s.Fact == "result" && s.Ours == "unknown" || s.Fact == "text" && s.Ours == "exec probes are not supported by this agent" || s.Fact == "request 1" && s.Ours == ""
		},
	}}
}
