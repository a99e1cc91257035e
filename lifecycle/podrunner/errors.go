package podrunner

import (
	"errors"
	"strings"
	"time"

	grpcstatus "google.golang.org/grpc/status"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// Reasons of waiting containers, as in a pod's status. Package lifecycle has
// those of back-off and of hooks, package images those of images.
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

// longestMessage is how many bytes of a runtime's error message go into a pod's
// status: it may contain a program's whole output. It is the limit of
// termination messages too.
const longestMessage = 4096

// startError is why a container could not be started: a message or an error.
type startError struct {
	reason, message string
	err             error
}

func (e *startError) Error() string { return e.reason + ": " + e.text() }

func (e *startError) Unwrap() error { return e.err }

// text returns the message, or the text of a gRPC error without its code.
func (e *startError) text() string {
	if e.err == nil {
		return e.message
	}
	return grpcstatus.Convert(e.err).Message()
}

// waitingReason returns the reason and message of a failed start for the status. They
// are empty if the container did not fail, as when the sync was cancelled.
// retryAt is set if the start only backs off.
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
