package podrunner

import (
	"strings"
	"time"
)

// Reasons for which a container waits, as a pod's status shows them. The two of
// backing off are in package lifecycle.
const (
	// ErrImagePull says that the image could not be pulled.
	ErrImagePull = "ErrImagePull"
	// ErrImageNeverPull says that the image is absent and may not be pulled.
	ErrImageNeverPull = "ErrImageNeverPull"
	// ImageInspectError says that the runtime could not tell about the image.
	ImageInspectError = "ImageInspectError"
	// InvalidImageName says that the image's name is none.
	InvalidImageName = "InvalidImageName"
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

// startError is why a container could not be started.
type startError struct {
	reason, message string    // a message may be missing
	err             error     // the cause, may be nil
	retryAt         time.Time // when it only backs off; zero: whenever failed turns are tried again
}

func (e *startError) Error() string { return e.reason + ": " + e.text() }

func (e *startError) Unwrap() error { return e.err }

// text is the message with its cause, cut to what a status takes.
func (e *startError) text() string {
	text := e.message
	if e.err != nil {
		text = strings.TrimPrefix(text+": "+e.err.Error(), ": ")
	}
	if len(text) > longestMessage {
		text = text[:longestMessage] + "..."
	}
	return strings.ToValidUTF8(text, "")
}
