package images

import (
	"errors"
	"fmt"
	"strings"
	"time"

	grpcstatus "google.golang.org/grpc/status"
)

// Reasons for which a container waits for its image, as a pod's status shows
// them: the kubelet's.
const (
	// ErrImagePull says that the image could not be pulled.
	ErrImagePull = "ErrImagePull"
	// ImagePullBackOff says that it could not, and that the next attempt waits.
	ImagePullBackOff = "ImagePullBackOff"
	// ErrImageNeverPull says that the image is absent, or not this pod's to use,
	// and may not be pulled.
	ErrImageNeverPull = "ErrImageNeverPull"
	// InvalidImageName says that the image's name is none.
	InvalidImageName = "InvalidImageName"
	// ImageInspectError says that the runtime could not tell about the image.
	ImageInspectError = "ImageInspectError"
	// RegistryUnavailable is the runtime's word for a registry that is not there.
	RegistryUnavailable = "RegistryUnavailable"
	// SignatureValidationFailed is the runtime's word for an image that its policy
	// of signatures refuses.
	SignatureValidationFailed = "SignatureValidationFailed"
)

// Reasons of events: the kubelet's.
const (
	// EventPulling says that a pull begins.
	EventPulling = "Pulling"
	// EventPulled says that the image is there.
	EventPulled = "Pulled"
	// EventFailed says that a pull failed.
	EventFailed = "Failed"
	// EventBackOff says that a pull waits for its back-off.
	EventBackOff = "BackOff"
	// EventInspectFailed says that an image's name or state could not be read.
	EventInspectFailed = "InspectFailed"
	// EventFailedToRetrieveImagePullSecret says that imagePullSecrets are missing.
	EventFailedToRetrieveImagePullSecret = "FailedToRetrieveImagePullSecret"
)

// An Error is why a container has no image yet.
type Error struct {
	// Reason is one of the reasons above.
	Reason string
	// Message explains it, and may be shown to whoever can see the pod.
	Message string
	// Err is the cause, nil if there is none beside Message.
	Err error
	// RetryAt is when the next attempt may be made, zero if that is up to the
	// caller. Only back-offs have it.
	RetryAt time.Time
}

// Error returns reason and message.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// runtimeText is what the runtime said, where the message has it in other words.
func (e *Error) runtimeText() string {
	if e.Reason == RegistryUnavailable || e.Reason == SignatureValidationFailed {
		return e.Err.Error()
	}
	return e.Message
}

// pullError turns a runtime's answer into ours. Runtimes say the two special
// cases in the first word of the text.
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

// scrubbed returns err, or one that says the same without the credentials.
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
