package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Defaults of [Config].
const (
	// DefaultProgressDeadline is how long a pull may go without progress.
	DefaultProgressDeadline = 15 * time.Minute
	// DefaultLeaseTTL is how long an image is kept for a container that is about
	// to be created.
	DefaultLeaseTTL = 10 * time.Minute
)

// ImageService is what a Manager asks of a runtime; cri.ImageManagerService has
// it.
type ImageService interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, podSandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
}

// Leases keeps images from garbage collection. Acquire keeps the image of a
// reference, which need not be there yet, for the owner until release is called or
// ttl is over; acquired again it lasts from then on. Release may be called twice.
type Leases interface {
	Acquire(ref, owner string, ttl time.Duration) (release func())
}

// EventRecorder takes events about pods; client-go's recorder fits.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Policy says how images are pulled, and who may use them. The zero Policy limits nothing.
type Policy struct {
	// MaxParallelPulls is how many pulls run at once, 1 for one after the other as
	// with the kubelet's serializeImagePulls. Those that wait go in their order.
	// Default: no limit.
	MaxParallelPulls int
	// QPS is how many pulls may begin in a second on average, and Burst how many
	// at once after a rest. Pulls above it wait. Default: no limit; with QPS,
	// Burst is 1 or more. The kubelet has 5 and 10.
	QPS   float64
	Burst int
	// Verify says which images that are present may be used only with
	// credentials that pulled them. Default [NeverVerifyPreloadedImages].
	Verify Verification
	// VerifyAllowlist are the repositories that [NeverVerifyAllowlistedImages] is
	// about, in full, without tag and digest; a final /* stands for whatever is
	// below.
	VerifyAllowlist []string
}

// Config configures a [Manager].
type Config struct {
	// Policy has the settings that programs leave to their users.
	Policy

	// Images is the runtime. Required.
	Images ImageService
	// Objects finds a pod's imagePullSecrets. Default: there are none, and an
	// event says so for each pod that names some.
	Objects podspec.Objects
	// Credentials are asked after the pod's imagePullSecrets, in this order. Optional.
	Credentials []CredentialProvider
	// Tokens requests tokens of service accounts, for Credentials. Optional.
	Tokens podspec.TokenFunc
	// Backoff delays the next pull after one that failed. Default: the kubelet's,
	// 10 s doubling to 5 min. It belongs to this Manager alone.
	Backoff *lifecycle.Backoff
	// ProgressDeadline is how long one call of PullImage may go without Progress.
	// Default [DefaultProgressDeadline].
	ProgressDeadline time.Duration
	// Progress returns a figure that moves while images are pulled, such as the
	// bytes used on the image filesystem (CRI's ImageFsInfo). CRI tells no more:
	// where several pulls run, each moves it for all. It is asked four times in a
	// ProgressDeadline. Default: nothing is progress, so that ProgressDeadline
	// bounds the pull as a whole.
	Progress func(context.Context) (uint64, error)
	// State remembers which credentials pulled which image, by keys that begin with
	// "image_manager/". Default: memory, so that after a restart what was pulled
	// before counts as preloaded.
	State Store
	// Leases keeps images from garbage collection between [Manager.Ensure] and
	// [Result.Release]. Optional.
	Leases Leases
	// LeaseTTL bounds that. Default [DefaultLeaseTTL].
	LeaseTTL time.Duration
	// Events takes the events that the kubelet would record, from several
	// goroutines. Optional.
	Events EventRecorder
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what was done. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They run inside Ensure, for different images
// at the same time, and must not block.
type Observer struct {
	// Pulled is called after every pull, once for all who waited for it.
	Pulled func(PullInfo)
}

// A PullInfo describes a pull that is over.
type PullInfo struct {
	// Image is what was pulled.
	Image string
	// Took is how long it took, Waited how long it waited for its turn.
	Took, Waited time.Duration
	// SizeBytes is the image's size, 0 if it failed.
	SizeBytes uint64
	// Err is why it failed.
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
	if !(c.QPS >= 0) { // which refuses what is no number, too
		errs = append(errs, fmt.Errorf("field QPS: %v is not a rate", c.QPS))
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
	return c, nil
}
