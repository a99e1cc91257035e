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

// pulledImagesKey is the key of the stored set of pulled images.
const pulledImagesKey = "images-pulled.json"

// Puller is the runtime's image service. It also records which images the agent has pulled,
// because the agent does not delete images that other programs have pulled. The record is
// stored, so that a restarted agent can read it. All methods are safe for concurrent use.
type Puller struct {
	ImageService
	store state.Store
	log   *slog.Logger

	mu     sync.Mutex
	loaded bool
	pulled map[string]bool // image IDs, or digests if the runtime returns digests
	pulls  int             // number of pulls
	last   map[string]int  // for each image: the value of pulls after its last pull
}

func newPuller(images ImageService, store state.Store, log *slog.Logger) *Puller {
	return &Puller{ImageService: images, store: store, log: log, pulled: map[string]bool{}, last: map[string]int{}}
}

// load reads the record of an earlier agent. Only the first call reads it. Without a record, all
// images in the runtime count as pulled by other programs.
func (p *Puller) load(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loaded {
		return
	}
	p.loaded = true
	if err := state.Load(ctx, p.store, pulledImagesKey, &p.pulled); err != nil {
		p.log.WarnContext(ctx, "could not read the record of pulled images, the agent will not delete images that are already present", "err", err)
	}
}

// PullImage pulls an image. Before the pull, it gets the image that the runtime already has
// under this name. If the pull returns the same image, PullImage does not record it, because the
// agent has not added it. PullImage does not free disk space before the pull, because CRI does
// not return the size of an image in a registry. If the disk becomes too full, eviction deletes
// images.
func (p *Puller) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	p.load(ctx)
	answer, err := p.ImageStatus(ctx, image, false)
	if err != nil {
		return "", fmt.Errorf("get status of image %s before its pull: %w", image.GetImage(), err)
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

// ListImages lists the images of the runtime. If the filter names no image, ListImages deletes from
// the record the images that are no longer in the list. If a deleted image reappears without a pull
// by the agent, another program has pulled it.
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

// record stores that the agent has pulled an image. If the record can't be stored, the agent
// does not delete the image after a restart.
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

// forget deletes images from the record, because they were missing in a list of the runtime.
// The last argument is the value of p.pulls before the list was requested. If the agent has
// pulled an image since then, the image remains in the record, because the list may be older than
// the pull.
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
		p.log.WarnContext(ctx, "could not save the record of pulled images, will retry when it changes; after a restart the agent reads the last saved record", "err", err)
	}
}

// preference returns Keep for images that the agent has not pulled.
func (p *Puller) preference(i imagegc.Image) imagegc.Preference {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled[i.ID] || slices.ContainsFunc(i.Digests, func(d string) bool { return p.pulled[d] }) {
		return imagegc.Default
	}
	return imagegc.Keep
}
