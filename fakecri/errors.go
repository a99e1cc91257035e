package fakecri

import (
	"context"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Exit codes and reasons, as containerd gives them. A reason that is not set
// follows from the exit code: Completed or Error.
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

// errUnavailable is what a client sees of a runtime that is not there.
func errUnavailable() error {
	return grpcstatus.Error(codes.Unavailable, "error reading from server: EOF")
}

// contextError is ctx's error as a client of a remote runtime gets it.
func contextError(ctx context.Context) error {
	return grpcstatus.FromContextError(ctx.Err()).Err()
}

func errNotFound(format string, args ...any) error {
	return grpcstatus.Errorf(codes.NotFound, format, args...)
}

// errUnknown is containerd's answer where it gives no code of its own.
func errUnknown(format string, args ...any) error {
	return grpcstatus.Errorf(codes.Unknown, format, args...)
}
