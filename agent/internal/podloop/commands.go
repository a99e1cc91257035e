package podloop

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/prober"
)

// commands runs the commands of exec probes through CRI.
type commands struct {
	runtime lifecycle.ExecRunner
}

// Exec implements [prober.Runner].
func (c commands) Exec(ctx context.Context, r prober.ExecRequest) (exitCode int32, err error) {
	stdout, stderr, err := c.runtime.ExecSync(ctx, r.ContainerID, r.Command, r.Timeout)
	var exit utilexec.ExitError
	switch {
	case errors.As(err, &exit):
		exitCode = int32(exit.ExitStatus())
	case grpcstatus.Code(err) == codes.DeadlineExceeded:
		return 0, context.DeadlineExceeded
	case err != nil && commandNotFound(err):
		return 0, fmt.Errorf("%w: %w", prober.ErrCommandNotFound, err)
	case err != nil:
		return 0, err
	}
	for _, part := range [][]byte{stdout, stderr} {
		_, _ = r.Output.Write(part) // never fails
	}
	return exitCode, nil
}

// commandNotFound reports whether err means that the command does not exist in its container.
// CRI has no error code for this case, but the error of a runtime contains the text of runc or
// crun. The errors of CRI-O contain lines of runc's log, in which quotes are escaped, with older
// versions of runc three times. Therefore commandNotFound removes all backslashes.
func commandNotFound(err error) bool {
	text := strings.ReplaceAll(grpcstatus.Convert(err).Message(), `\`, "")
	_, runc, _ := strings.Cut(text, `exec: "`)
	_, crun, _ := strings.Cut(text, "executable file `")
	return strings.Contains(runc, "executable file not found") || strings.Contains(runc, "no such file or directory") ||
		strings.Contains(crun, "` not found") || strings.Contains(text, "not found in $PATH")
}
