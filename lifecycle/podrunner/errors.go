package podrunner

import (
	"errors"
	"strings"
	"time"

	grpcstatus "google.golang.org/grpc/status"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// Reasons for which a container waits, as a pod's status shows them. Those of
// backing off and of hooks are in package lifecycle, those of images in package
// images.
const (
	// CreateContainerConfigError says that the spec has no configuration.
	CreateContainerConfigError = "CreateContainerConfigError"
	// CreateContainerError says that the runtime could not create the container.
	CreateContainerError = "CreateContainerError"
	// RunContainerError says that the runtime could not start it.
	RunContainerError = "RunContainerError"
	// RestartingAllContainers says that the whole pod begins anew.
	RestartingAllContainers = "RestartingAllContainers"
)

// longestMessage is what a pod's status takes of a runtime's explanations, which
// may hold a program's whole output; as much as of a termination message.
const longestMessage = 4096

// startError is why a container could not be started: a message or an error.
type startError struct {
	reason, message string
	err             error
}

func (e *startError) Error() string { return e.reason + ": " + e.text() }

func (e *startError) Unwrap() error { return e.err }

// text is the message, or the words of a runtime's error without its code.
func (e *startError) text() string {
	if e.err == nil {
		return e.message
	}
	return grpcstatus.Convert(e.err).Message()
}

// whyNot returns what a status shows of a failure to start a container, nothing
// of one that is no failure of the container: the end of the turn. retryAt is
// when it only backs off.
func whyNot(err error) (reason, message string, retryAt time.Time) {
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
