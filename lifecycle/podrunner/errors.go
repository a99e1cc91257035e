package podrunner

import (
	"errors"
	"strings"
	"time"

	grpcstatus "google.golang.org/grpc/status"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// Reasons of waiting containers, as in a pod's status. Package lifecycle has
// the reasons about back-off and hooks, and package images has the reasons
// about images.
const (
	// CreateContainerConfigError means that the container's configuration is
	// invalid.
	CreateContainerConfigError = "CreateContainerConfigError"
	// CreateContainerError means that the runtime could not create the
	// container.
	CreateContainerError = "CreateContainerError"
	// RunContainerError means that the runtime could not start the container.
	RunContainerError = "RunContainerError"
	// RestartingAllContainers means that all containers of the pod are being
	// restarted.
	RestartingAllContainers = "RestartingAllContainers"
)

// longestMessage is the maximum length, in bytes, of a runtime's error message
// in a pod's status. The message may contain all output of a program. The limit
// of termination messages is the same.
const longestMessage = 4096

// startError describes why a container could not be started. It has a message,
// an error, or both.
type startError struct {
	reason, message string
	err             error
}

func (e *startError) Error() string { return e.reason + ": " + e.text() }

func (e *startError) Unwrap() error { return e.err }

// text returns the text of the error without its gRPC code. If the startError
// has no error, text returns the message.
func (e *startError) text() string {
	if e.err == nil {
		return e.message
	}
	return grpcstatus.Convert(e.err).Message()
}

// waitingReason returns the reason and message of a failed start for the
// status. Both are empty if err is not a failure of the container, for example
// if a pull or a hook was cancelled. If the start only waits for a back-off,
// retryAt is the end of the back-off.
func waitingReason(err error) (reason, message string, retryAt time.Time) {
	if e, ok := errors.AsType[*images.Error](err); ok {
		reason, message, retryAt = e.Reason, e.Message, e.RetryAt
	}
	if e, ok := errors.AsType[*startError](err); ok {
		reason, message = e.reason, e.text()
	}
	if len(message) > longestMessage {
		message = message[:longestMessage] + "..."
	}
	return reason, strings.ToValidUTF8(message, ""), retryAt
}
