package fakecri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	utilexec "k8s.io/utils/exec"
)

// ExecSync runs a command in a running container: see Program.Exec. It blocks for as long
// as the command takes on the node's clock. If the exit code is not zero, the error is a
// [utilexec.CodeExitError], as from the Kubernetes client. If timeout is not zero and the
// command takes longer, the error is DeadlineExceeded. When the container exits, the
// command is killed.
func (n *Node) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	answer, err := n.runExec(ctx, containerID, cmd, timeout)
	if err != nil {
		return nil, nil, err
	}
	if answer.ExitCode != 0 {
		err = utilexec.CodeExitError{
			Err:  fmt.Errorf("command '%s' exited with %d: %s", strings.Join(cmd, " "), answer.ExitCode, answer.Stderr),
			Code: int(answer.ExitCode),
		}
	}
	return []byte(answer.Stdout), []byte(answer.Stderr), err
}

func (n *Node) runExec(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (Exec, error) {
	if err := n.enter(ctx, "ExecSync", containerID, ""); err != nil {
		return Exec{}, err
	}
	defer n.mu.Unlock()
	c, ok := n.containers.byID[containerID]
	if !ok {
		return Exec{}, errNotFound("failed to exec in container: failed to find container %q in store: not found", containerID)
	}
	if !c.running() {
		return Exec{}, errUnknown("failed to exec in container: container is in %v state", c.state)
	}
	answer, ok := c.program.exec(cmd)
	if answer.Health && !n.healthy(c) {
		answer.ExitCode = 1
	}
	if !ok {
		return Exec{}, errUnknown("failed to exec in container: failed to start exec: %q: executable file not found in $PATH", cmd)
	}
	runtime, late := answer.Runtime, false
	if timeout > 0 && runtime > timeout {
		runtime, late = timeout, true
	}
	over := false
	alarm := n.plan(n.now.Add(runtime), func() { over = true })
	defer n.timers.remove(alarm)
	if err := n.await(ctx, func() bool { return over || !c.running() }); err != nil {
		return Exec{}, err
	}
	switch {
	case !over:
		return Exec{ExitCode: exitKilled}, nil
	case late:
		return Exec{}, grpcstatus.Errorf(codes.DeadlineExceeded,
			"failed to exec in container: timeout %v exceeded: context deadline exceeded", timeout)
	}
	return answer, nil
}

// ReopenContainerLog creates the log file of a running container if the file does not
// exist, for example after a rotation.
func (n *Node) ReopenContainerLog(ctx context.Context, containerID string) error {
	if err := n.enter(ctx, "ReopenContainerLog", containerID, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	c, ok := n.containers.byID[containerID]
	if !ok {
		return errNotFound("an error occurred when try to find container %q: not found", containerID)
	}
	if !c.running() {
		return errUnknown("container is not running")
	}
	if err := n.appendLog(c, nil); err != nil {
		return errUnknown("failed to create and open log file: %v", err)
	}
	return nil
}
