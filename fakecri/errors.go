package fakecri

import (
	"context"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Exit codes and reasons as in containerd. If an exited container has no reason, its status
// shows Completed or Error, depending on the exit code.
const (
	exitStartError = 128
	exitKilled     = 137 // 128 + SIGKILL
	exitTerminated = 143 // 128 + SIGTERM
	exitUnknown    = 255

	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOMKilled  = "OOMKilled"
	reasonStartError = "StartError"
	reasonUnknown    = "Unknown"
)

// errUnavailable is the error that a client gets if the runtime is down.
func errUnavailable() error {
	return grpcstatus.Error(codes.Unavailable, "error reading from server: EOF")
}

// contextError returns ctx's error as the gRPC status that a client of a remote runtime
// gets.
func contextError(ctx context.Context) error {
	return grpcstatus.FromContextError(ctx.Err()).Err()
}

func errNotFound(format string, args ...any) error {
	return grpcstatus.Errorf(codes.NotFound, format, args...)
}

// errUnknown returns an error with code Unknown, which containerd returns where it sets no
// other code.
func errUnknown(format string, args ...any) error {
	return grpcstatus.Errorf(codes.Unknown, format, args...)
}
