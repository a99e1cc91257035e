package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/imagegc"
)

// puller is a client that remembers, over restarts, which images it has brought here.
type puller struct {
	*cri.Client
	store state.Store
	log   *slog.Logger

	mu     sync.Mutex
	ours   map[string]bool // ids, or digests of runtimes that name images so
	absent map[string]bool // names that nothing had when last asked about
}

const pulledImagesKey = "images-pulled.json"

func newPuller(ctx context.Context, client *cri.Client, store state.Store, log *slog.Logger) *puller {
	p := &puller{Client: client, store: store, log: log, ours: map[string]bool{}, absent: map[string]bool{}}
	if err := state.Load(ctx, store, pulledImagesKey, &p.ours); err != nil {
		log.WarnContext(ctx, "which images are this agent's is not known any more: none of those that are here will be removed", "err", err)
	}
	return p
}

// PullImage pulls an image. No room is made for it first: how large it is CRI does not
// say. If the disk becomes too full, eviction reclaims images at once.
func (p *puller) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	before, err := p.before(ctx, image)
	if err != nil {
		return "", err
	}
	ref, err := p.Client.PullImage(ctx, image, auth, sandbox)
	if err != nil {
		return ref, err
	}
	if ref != before.GetId() && !slices.Contains(before.GetRepoDigests(), ref) {
		p.remember(ctx, ref)
	}
	return ref, nil
}

// before returns what the name is of, nil for nothing. A pull is for a name of which
// that was asked already, unless it is to be pulled Always.
func (p *puller) before(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	p.mu.Lock()
	absent := p.absent[image.GetImage()]
	delete(p.absent, image.GetImage())
	p.mu.Unlock()
	if absent {
		return nil, nil
	}
	answer, err := p.Client.ImageStatus(ctx, image, false)
	return answer.GetImage(), err
}

func (p *puller) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	answer, err := p.Client.ImageStatus(ctx, image, verbose)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && answer.GetImage().GetId() == "" {
		p.absent[image.GetImage()] = true
	} else {
		delete(p.absent, image.GetImage())
	}
	return answer, err
}

// remember notes that an image is here because of this agent. If that can't be
// written, it will look like somebody else's after a restart, and stay.
func (p *puller) remember(ctx context.Context, ref string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ours[ref] {
		return
	}
	p.ours[ref] = true
	if err := state.Save(ctx, p.store, pulledImagesKey, p.ours); err != nil {
		p.log.WarnContext(ctx, "remembering a pulled image failed", "image", ref, "err", err)
	}
}

// preference keeps what others have brought here.
func (p *puller) preference(i imagegc.Image) imagegc.Preference {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ours[i.ID] || slices.ContainsFunc(i.Digests, func(d string) bool { return p.ours[d] }) {
		return imagegc.Default
	}
	return imagegc.Keep
}
