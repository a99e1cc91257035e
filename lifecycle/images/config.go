package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Defaults of [Config].
const (
	// DefaultProgressDeadline is the default of [Config].ProgressDeadline.
	DefaultProgressDeadline = 15 * time.Minute
	// DefaultLeaseTTL is the default of [Config].LeaseTTL.
	DefaultLeaseTTL = 10 * time.Minute
)

// ImageService are the runtime's calls that a Manager needs;
// cri.ImageManagerService implements it.
type ImageService interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, podSandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
}

// Leases protects images from garbage collection. Acquire protects the image of
// a reference for an owner, until release is called or ttl has passed. The
// image need not be present yet. Another Acquire for the same reference and
// owner renews the ttl. release may be called twice.
type Leases interface {
	Acquire(ref, owner string, ttl time.Duration) (release func())
}

// EventRecorder records events about pods; client-go's recorder implements it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Policy configures how images are pulled, and which pods may use them. The
// zero Policy has no limits.
type Policy struct {
	// MaxParallelPulls limits the concurrent pulls; 1 is like the kubelet's
	// serializeImagePulls. Waiting pulls start in order of arrival. Default: no
	// limit.
	MaxParallelPulls int
	// QPS limits the average number of pulls per second. Burst is how many
	// pulls may start at the same time after a pause. Pulls above the limit
	// wait. Default: no limit. If QPS is set, a Burst of 0 means 1. The
	// kubelet's defaults are 5 and 10.
	QPS   float64
	Burst int
	// Verify selects the images that must be verified: a pod may use such an
	// image only if the image was pulled anonymously, with credentials of the
	// node, or with credentials that the pod has. Default
	// [NeverVerifyPreloadedImages].
	Verify Verification
	// VerifyAllowlist are the repositories for [NeverVerifyAllowlistedImages],
	// with their registry, without tag and digest. An item that ends in /*
	// matches all repositories below that path.
	VerifyAllowlist []string
}

// Config configures a [Manager].
type Config struct {
	// Policy holds the settings that agents usually leave to their users.
	Policy

	// Images is the runtime. Required.
	Images ImageService
	// Objects reads a pod's imagePullSecrets. If nil, no Secret can be read,
	// and an event reports the imagePullSecrets that a pod names.
	Objects podspec.Objects
	// Credentials are the credential providers. The Manager calls them after it
	// has read the pod's imagePullSecrets, in the order of the list. Optional.
	Credentials []CredentialProvider
	// Tokens requests service account tokens for Credentials. Optional.
	Tokens podspec.TokenFunc
	// Backoff delays the next pull after a failure. Default: as in the kubelet,
	// 10 s, which doubles with each failure up to 5 min. The caller must not
	// use this Backoff for anything else.
	Backoff *lifecycle.Backoff
	// ProgressDeadline is how long one call of PullImage may run without
	// progress; see Progress. Default [DefaultProgressDeadline].
	ProgressDeadline time.Duration
	// Progress returns a number that changes while images are pulled, such as
	// the bytes used on the image file system (CRI's ImageFsInfo). The CRI does
	// not report the progress of a single pull, so if several pulls run, the
	// progress of one pull counts for all of them. Progress is called four
	// times per ProgressDeadline. If nil, no progress is known, and
	// ProgressDeadline limits the whole call of PullImage.
	Progress func(context.Context) (uint64, error)
	// State stores which credentials pulled which image, under keys that begin
	// with "image_manager/". Default: a store in memory. All images that were
	// pulled before a restart of the agent then count as preloaded.
	State Store
	// Leases protects images from garbage collection between [Manager.Ensure]
	// and [Result.Release]. Optional.
	Leases Leases
	// LeaseTTL limits the time of a lease. Default [DefaultLeaseTTL].
	LeaseTTL time.Duration
	// Events receives the events that the kubelet would record, from several
	// goroutines. Optional.
	Events EventRecorder
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer is notified of pulls. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They are called during Ensure, and
// RecordsChanged also during Prune. Calls may be concurrent. The callbacks must
// not block.
type Observer struct {
	// Pulled is called after every pull, once for all callers that waited for
	// it.
	Pulled func(PullInfo)
	// Awaited is called for each caller of Ensure that has waited for a pull,
	// successful or not.
	Awaited func(PullWait)
	// Verified is called each time that the Manager has decided whether a pod
	// may use a present image.
	Verified func(Verdict)
	// RecordsChanged is called after a change of the stored records, with the
	// number of intents and of pulled images in the store. It must not call
	// Ensure or Prune.
	RecordsChanged func(intents, pulled int)
}

// A PullWait describes the time that a caller of Ensure has waited for a pull.
type PullWait struct {
	// PodUID is the UID of the pod that needs the image.
	PodUID types.UID
	// Began and Ended are when the caller began and stopped to wait.
	Began, Ended time.Time
}

// A Verdict is why a pod may use a present image, or why the image must be
// pulled with the pod's credentials. The values are those of the kubelet's
// metric imagemanager_image_mustpull_checks_total.
type Verdict string

// The verdicts.
const (
	// PolicyAllowed means that the policy [Policy].Verify lets every pod use
	// the image.
	PolicyAllowed Verdict = "credentialPolicyAllowed"
	// RecordFound means that the record of an earlier pull of the image gives
	// the pod access.
	RecordFound Verdict = "credentialRecordFound"
	// MustAuthenticate means that the image must be pulled with a credential of
	// the pod.
	MustAuthenticate Verdict = "mustAuthenticate"
	// VerificationFailed means that the credentials or the records could not be
	// read.
	VerificationFailed Verdict = "error"
)

// A PullInfo describes a finished pull.
type PullInfo struct {
	// Image is the image reference.
	Image string
	// Took is the duration of the pull, and Waited is how long the pull waited
	// before it started.
	Took, Waited time.Duration
	// SizeBytes is the image's size, 0 if the pull failed.
	SizeBytes uint64
	// Err is the error of the pull.
	Err error
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Images == nil {
		errs = append(errs, errors.New("field Images is required"))
	}
	if c.MaxParallelPulls < 0 {
		errs = append(errs, fmt.Errorf("field MaxParallelPulls: %d is negative", c.MaxParallelPulls))
	}
	if !(c.QPS >= 0) { // also rejects NaN
		errs = append(errs, fmt.Errorf("field QPS: %v must be zero or positive", c.QPS))
	}
	if c.Burst < 0 {
		errs = append(errs, fmt.Errorf("field Burst: %d is negative", c.Burst))
	}
	if c.ProgressDeadline < 0 {
		errs = append(errs, fmt.Errorf("field ProgressDeadline: %v is negative", c.ProgressDeadline))
	}
	if c.LeaseTTL < 0 {
		errs = append(errs, fmt.Errorf("field LeaseTTL: %v is negative", c.LeaseTTL))
	}
	for i, p := range c.Credentials {
		if p == nil || p.Name() == "" {
			errs = append(errs, fmt.Errorf("field Credentials: item %d is nil or has no name", i))
		}
	}
	return errors.Join(append(errs, c.validateRecords())...)
}

func (c Config) withDefaults() (Config, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Backoff == nil {
		b, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: c.Clock})
		if err != nil {
			return c, err
		}
		c.Backoff = b
	}
	if c.ProgressDeadline == 0 {
		c.ProgressDeadline = DefaultProgressDeadline
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.Verify == "" {
		c.Verify = NeverVerifyPreloadedImages
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer.Pulled == nil {
		c.Observer.Pulled = func(PullInfo) {}
	}
	if c.Observer.Awaited == nil {
		c.Observer.Awaited = func(PullWait) {}
	}
	if c.Observer.Verified == nil {
		c.Observer.Verified = func(Verdict) {}
	}
	return c, nil
}
