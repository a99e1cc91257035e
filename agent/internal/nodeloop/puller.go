package nodeloop

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/imagegc"
)

// pulledImagesKey is where the images are stored that an agent has pulled.
const pulledImagesKey = "images-pulled.json"

// Puller is the runtime's image service. It records, over restarts of the agent, which
// images the agent has pulled: images that others have brought to the runtime are not
// deleted. All methods may be called by several goroutines.
type Puller struct {
	ImageService
	store state.Store
	log   *slog.Logger

	mu     sync.Mutex
	loaded bool
	pulled map[string]bool // ids, or digests of runtimes that return those
	pulls  int             // counts the pulls
	last   map[string]int  // which pull of these was the last of an image
}

func newPuller(images ImageService, store state.Store, log *slog.Logger) *Puller {
	return &Puller{ImageService: images, store: store, log: log, pulled: map[string]bool{}, last: map[string]int{}}
}

// load reads the record of an earlier agent, once. Without it all images that the runtime
// has are taken for those of others.
func (p *Puller) load(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loaded {
		return
	}
	p.loaded = true
	if err := state.Load(ctx, p.store, pulledImagesKey, &p.pulled); err != nil {
		p.log.WarnContext(ctx, "could not read which images the agent has pulled: no present image will be deleted", "err", err)
	}
}

// PullImage pulls an image. It asks first which image has the name now: if the pull ends with
// the same one, the agent has not brought it. No space is freed before: CRI does not return
// the size of an image in a registry. If the disk becomes too full, eviction deletes images.
func (p *Puller) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	p.load(ctx)
	answer, err := p.ImageStatus(ctx, image, false)
	if err != nil {
		return "", fmt.Errorf("look for image %s before its pull: %w", image.GetImage(), err)
	}
	before := answer.GetImage()
	ref, err := p.ImageService.PullImage(ctx, image, auth, sandbox)
	if err != nil {
		return ref, err
	}
	if ref != before.GetId() && !slices.Contains(before.GetRepoDigests(), ref) {
		p.record(ctx, ref)
	}
	return ref, nil
}

// ListImages lists the images in the runtime. Images that are not in it any more were not
// pulled by the agent if they appear again.
func (p *Puller) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	p.mu.Lock()
	before, pulls := slices.Collect(maps.Keys(p.pulled)), p.pulls
	p.mu.Unlock()
	images, err := p.ImageService.ListImages(ctx, filter)
	if err != nil || filter.GetImage().GetImage() != "" {
		return images, err
	}
	present := map[string]bool{}
	for _, i := range images {
		present[i.GetId()] = true
		for _, d := range i.GetRepoDigests() {
			present[d] = true
		}
	}
	p.forget(ctx, slices.DeleteFunc(before, func(ref string) bool { return present[ref] }), pulls)
	return images, nil
}

// record stores that an image is in the runtime because of this agent. If that fails, the
// image stays after a restart.
func (p *Puller) record(ctx context.Context, ref string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulls++
	p.last[ref] = p.pulls
	if !p.pulled[ref] {
		p.pulled[ref] = true
		p.save(ctx)
	}
}

// forget deletes the record of images that a list of the runtime did not have. Images that
// were pulled after the given number of pulls stay: the list may be older.
func (p *Puller) forget(ctx context.Context, refs []string, pulls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.pulled)
	for _, ref := range refs {
		if p.last[ref] <= pulls {
			delete(p.pulled, ref)
			delete(p.last, ref)
		}
	}
	if len(p.pulled) < before {
		p.save(ctx)
	}
}

// save stores the record. The caller holds mu.
func (p *Puller) save(ctx context.Context) {
	if err := state.Save(ctx, p.store, pulledImagesKey, p.pulled); err != nil {
		p.log.WarnContext(ctx, "could not save which images the agent has pulled: after a restart they will not be deleted", "err", err)
	}
}

// preference keeps images that the agent has not pulled.
func (p *Puller) preference(i imagegc.Image) imagegc.Preference {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled[i.ID] || slices.ContainsFunc(i.Digests, func(d string) bool { return p.pulled[d] }) {
		return imagegc.Default
	}
	return imagegc.Keep
}
