package fakecri

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Pull defines how an image is pulled. With the zero Pull, a pull takes no time and always
// succeeds.
type Pull struct {
	// Delay is the time until the first byte arrives, or until the pull fails with Error.
	Delay time.Duration
	// BytesPerSecond is the download rate of layers that are not in the store yet. Zero
	// means that the download takes no time.
	BytesPerSecond uint64
	// Username and Password, if not empty, are required in the pull's AuthConfig, as plain
	// fields or encoded in the Auth field.
	Username, Password string
	// Error, if not empty, is the error with which the pull fails after Delay.
	Error string
}

// Validate returns all problems with p as one joined error.
func (p Pull) Validate() error {
	var errs []error
	if p.Delay < 0 {
		errs = append(errs, fmt.Errorf("field Delay: %v is negative", p.Delay))
	}
	if p.Username == "" && p.Password != "" {
		errs = append(errs, errors.New("field Password needs a Username"))
	}
	if p.Error != "" && p.BytesPerSecond != 0 {
		errs = append(errs, errors.New("field BytesPerSecond: a pull that fails with Error fetches nothing"))
	}
	return errors.Join(errs...)
}

// admits reports whether a pull with these credentials is allowed.
func (p Pull) admits(auth *runtimeapi.AuthConfig) bool {
	if p.Username == "" {
		return true
	}
	if auth.GetUsername() == p.Username && auth.GetPassword() == p.Password {
		return true
	}
	text, err := base64.StdEncoding.DecodeString(auth.GetAuth())
	return err == nil && string(text) == p.Username+":"+p.Password
}

// duration returns how long a pull takes that fetches this number of bytes.
func (p Pull) duration(bytes uint64) time.Duration {
	if p.BytesPerSecond == 0 {
		return p.Delay
	}
	fetch, ok := timeFor(bytes, p.BytesPerSecond)
	if !ok || fetch > math.MaxInt64-p.Delay {
		return math.MaxInt64
	}
	return p.Delay + fetch
}

// PullImage adds an image to the store with the given reference and returns its id. It
// blocks for the time that Image.Pull defines. If ctx ends, the runtime restarts or the
// disk is full, it returns an error and adds nothing.
func (n *Node) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	name := image.GetImage()
	if err := n.enter(ctx, "PullImage", "", name); err != nil {
		return "", err
	}
	defer n.mu.Unlock()
	ref, err := parseRef(name)
	if err != nil {
		return "", errUnknown("failed to parse image reference %q: %v", name, err)
	}
	img, ok := n.images.remote[ref.String()]
	switch {
	case ok:
	case n.cfg.PullAny:
		img = Image{Name: ref.String(), SizeBytes: 1 << 20}.complete()
	default:
		return "", errNotFound("failed to pull and unpack image %q: failed to resolve image: %s: not found", ref, ref)
	}
	if err := n.fetch(ctx, ref, img, auth); err != nil {
		return "", err
	}
	return n.images.add(img, ref).id, nil
}

// fetch waits until the whole image is downloaded.
func (n *Node) fetch(ctx context.Context, ref imageref.Ref, img Image, auth *runtimeapi.AuthConfig) error {
	if !img.Pull.admits(auth) {
		return errUnknown("failed to pull and unpack image %q: failed to resolve image: pull access denied, repository does not exist "+
			"or may require authorization: authorization failed: no basic auth credentials", ref)
	}
	wait := img.Pull.Delay
	if img.Pull.Error == "" {
		wait = img.Pull.duration(n.images.missing(img))
	}
	over := wait == 0
	if !over {
		alarm := n.plan(n.now.Add(wait), func() { over = true })
		defer n.timers.remove(alarm)
	}
	if err := n.await(ctx, func() bool { return over }); err != nil {
		return err
	}
	if img.Pull.Error != "" {
		return errUnknown("failed to pull and unpack image %q: %s", ref, img.Pull.Error)
	}
	if n.images.missing(img) > n.diskUsage().AvailableBytes {
		return errUnknown("failed to pull and unpack image %q: failed to extract layer: write %s: no space left on device", ref, filesystem)
	}
	return nil
}
