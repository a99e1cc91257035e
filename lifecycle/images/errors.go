package images

import (
	"errors"
	"fmt"
	"strings"
	"time"

	grpcstatus "google.golang.org/grpc/status"
)

// Reasons of a container that waits for its image, the same as the kubelet's.
const (
	// ErrImagePull means that the image could not be pulled.
	ErrImagePull = "ErrImagePull"
	// ImagePullBackOff means that a pull failed and that the back-off delays
	// the next attempt.
	ImagePullBackOff = "ImagePullBackOff"
	// ErrImageNeverPull means that the pull policy is Never, and that the image
	// is missing or that the pod has no access to it.
	ErrImageNeverPull = "ErrImageNeverPull"
	// InvalidImageName means that the image's name is invalid.
	InvalidImageName = "InvalidImageName"
	// ImageInspectError means that the runtime could not return the image's
	// status.
	ImageInspectError = "ImageInspectError"
	// RegistryUnavailable is the runtime's error for an unavailable registry.
	RegistryUnavailable = "RegistryUnavailable"
	// SignatureValidationFailed is the runtime's error for an image whose
	// signature the runtime's policy rejects.
	SignatureValidationFailed = "SignatureValidationFailed"
)

// Reasons of events, the same as the kubelet's.
const (
	// EventPulling means that a pull begins.
	EventPulling = "Pulling"
	// EventPulled means that the image is present.
	EventPulled = "Pulled"
	// EventFailed means that a pull failed, or that a pull secret is malformed.
	EventFailed = "Failed"
	// EventBackOff means that the back-off delays a pull.
	EventBackOff = "BackOff"
	// EventInspectFailed means that an image's name or status could not be
	// read.
	EventInspectFailed = "InspectFailed"
	// EventFailedToRetrieveImagePullSecret means that imagePullSecrets are
	// missing or could not be read.
	EventFailedToRetrieveImagePullSecret = "FailedToRetrieveImagePullSecret"
)

// An Error describes why the image of a container is not available.
type Error struct {
	// Reason is one of the reasons above.
	Reason string
	// Message explains the reason. It may be shown to everyone who can see the
	// pod.
	Message string
	// Err is the cause, nil if there is only a Message.
	Err error
	// RetryAt is the time from which the next attempt may be made. It is set
	// only if the Reason is [ImagePullBackOff].
	RetryAt time.Time
}

// Error returns reason and message.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// runtimeText returns the text of the runtime's error. Message may have another
// text.
func (e *Error) runtimeText() string {
	if e.Reason == RegistryUnavailable || e.Reason == SignatureValidationFailed {
		return e.Err.Error()
	}
	return e.Message
}

// pullError converts a runtime's error. For RegistryUnavailable and
// SignatureValidationFailed, runtimes put the reason at the beginning of the
// text.
func pullError(image string, err error) *Error {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, RegistryUnavailable); ok {
		return &Error{
			Reason: RegistryUnavailable, Err: err,
			Message: fmt.Sprintf("image pull failed for %s because the registry is unavailable%s", image, rest),
		}
	}
	if rest, ok := strings.CutPrefix(text, SignatureValidationFailed); ok {
		return &Error{
			Reason: SignatureValidationFailed, Err: err,
			Message: fmt.Sprintf("image pull failed for %s because the signature validation failed%s", image, rest),
		}
	}
	return &Error{Reason: ErrImagePull, Message: text, Err: err}
}

// scrubbed returns err, or a copy of it without credentials.
func scrubbed(err error, keys []Credential) error {
	text := err.Error()
	clean := scrub(text, keys)
	if clean == text {
		return err
	}
	if s, ok := grpcstatus.FromError(err); ok {
		return grpcstatus.Error(s.Code(), scrub(s.Message(), keys))
	}
	return errors.New(clean)
}
