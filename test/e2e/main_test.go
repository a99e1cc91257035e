//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
)

const (
	// bedDir is constant, so that a run finds the directory of a killed run.
	bedDir = "/tmp/kpbed-e2e"
	// scratchDir contains the agent, if it is built, and the tests' temporary files, which a
	// test that panics does not remove.
	scratchDir = bedDir + ".tmp"
	// repository is the module's root relative to this package's directory, in which go test
	// runs the binary.
	repository = "../.."
	// agentVar is the environment variable with the path of the agent binary, for both
	// processes.
	agentVar = "KUBEPARTS_AGENT"
	// bedVar is the environment variable with the directory of the bed. It is set only in the
	// second process.
	bedVar = "KUBEPARTS_E2E_BED"
)

// bed is the bed that all tests share. TestMain sets it.
var bed *testbed

func TestMain(m *testing.M) {
	run := supervise
	if os.Getenv(bedVar) != "" {
		run = func() (int, error) { return runTests(m) }
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// runTests is the second process: it runs the tests on a running bed.
func runTests(m *testing.M) (code int, err error) {
	bed, err = openBed(os.Getenv(bedVar))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, bed.stalls.close(), bed.close()) }()
	return m.Run(), nil
}

// supervise is the first process: it starts the bed, runs this binary again with the tests,
// and stops the bed regardless of the result.
func supervise() (code int, err error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return 1, errors.New("these tests start containers: they need root on Linux")
	}
	// Use Notify, not Ignore: the second process would inherit ignored signals.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	lock, err := lockBed()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	if err := errors.Join(clearSmallBeds(), bedDown(bedDir), removeScratch(), os.Mkdir(scratchDir, 0o755)); err != nil {
		return 1, fmt.Errorf("taking away what an earlier run left: %w", err)
	}
	defer func() { err = errors.Join(err, removeScratch()) }()
	agent, err := buildAgent(scratchDir)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, clearSmallBeds(), bedDown(bedDir)) }()
	if err := bedUp(bedDir); err != nil {
		return 1, err
	}
	return runSecond(agent, lock, signals)
}

// removeScratch removes scratchDir. It first unmounts the mounts of killed tests: RemoveAll
// cannot remove a mount point, and through a bind mount it would remove files in other
// directories.
func removeScratch() error {
	for _, target := range mountsBelow(scratchDir) {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return os.RemoveAll(scratchDir)
}

// runSecond runs the process with the tests in a separate process group. At the end it kills
// the group, including agents that are still running.
func runSecond(agent string, lock *os.File, signals <-chan os.Signal) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	args := os.Args[1:]
	if containerdVersion() == sharedEventsVersion {
		// The agents of two parallel tests would take each other's events.
		args = append(slices.Clone(args), "-test.parallel=1")
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), bedVar+"="+bedDir, agentVar+"="+agent, "TMPDIR="+scratchDir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{lock} // the lock is released when both processes have exited
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 1, err
			}
		case err := <-done:
			if killErr := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
				return 1, killErr
			}
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return max(exit.ExitCode(), 1), nil // -1 after a signal
			}
			return 0, err
		}
	}
}

// lockBed makes runs on one machine wait for each other. The kernel releases the lock when
// the process exits in any way.
func lockBed() (*os.File, error) {
	f, err := os.OpenFile(bedDir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(errors.New("another run of these tests is using "+bedDir), f.Close())
	}
	return f, err
}

// buildAgent returns the agent binary under test.
func buildAgent(dir string) (string, error) {
	if path := os.Getenv(agentVar); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(dir, "minimal-agent")
	cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", "grpcnotrace", "-o", path, "./examples/minimal-agent")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the agent: %w\n%s", err, out)
	}
	return path, nil
}
