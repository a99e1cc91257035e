package imagegc

import (
	"context"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// detect lists images, then containers. Because of this order, a container that already
// existed when the images were listed is in the list of containers. If detect returns an
// error, nothing may be deleted. The lists are recorded even if an inspection fails. A new
// image counts as first seen at the start of the pass.
func (m *Manager) detect(ctx context.Context, began time.Time) error {
	m.load(ctx, began)
	images, err := m.listImages(ctx)
	if err != nil {
		return err
	}
	uninspected, err := m.listContainers(ctx)
	if err != nil {
		return err
	}
	inspectErr := m.inspect(ctx, uninspected)
	m.record(images, began)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images = images
	m.dropLeases(func(l *lease) bool { return !began.Before(l.expires) })
	return inspectErr
}

// listImages lists the images of the runtime. The list is not nil, even if the runtime has no images.
func (m *Manager) listImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	images, err := m.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return slices.DeleteFunc(append([]*runtimeapi.Image{}, images...), func(i *runtimeapi.Image) bool { return i == nil }), nil
}

// listContainers lists containers and returns the IDs of the containers to inspect.
func (m *Manager) listContainers(ctx context.Context) ([]string, error) {
	at := m.cfg.Clock.Now()
	list, err := m.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	m.usersAt = at
	return m.users.list(list, at), nil
}

// inspect inspects containers. If it returns an error, nothing may be deleted.
func (m *Manager) inspect(ctx context.Context, ids []string) error {
	m.users.inspect(ctx, m.cfg.Runtime, ids, m.cfg.Clock.Now())
	protectAll, ignored := m.users.inspectionErrors(m.cfg.Clock.Now())
	if ignored != nil && len(ids) > 0 {
		m.cfg.Logger.WarnContext(ctx, "could not inspect some containers, garbage collection keeps only the images in their list entries", "err", ignored)
	}
	return protectAll
}

// record replaces the records with the records of the listed images.
func (m *Manager) record(images []*runtimeapi.Image, began time.Time) {
	before, now := m.records, m.cfg.Clock.Now()
	m.records = make(map[string]*record, len(images))
	for _, img := range images {
		key := listedKey(img)
		r := before[key]
		if r == nil {
			r = &record{age: age{FirstDetected: began}}
			before[key] = r // if the image is listed twice
			m.changed = true
		}
		m.records[key] = r
		used := r.containers > 0
		r.containers = m.users.countOf(imageNames(img.Id, img.RepoTags, img.RepoDigests), img.Spec.GetRuntimeHandler())
		if r.containers > 0 {
			r.LastUsed = now
		}
		m.changed = m.changed || used != (r.containers > 0)
	}
	m.changed = m.changed || len(m.records) < len(before)
}

func listedKey(img *runtimeapi.Image) string { return imageKey(img.Id, img.Spec.GetRuntimeHandler()) }

// snapshot returns all images that were listed and not deleted since.
func (m *Manager) snapshot() []Image {
	now := m.cfg.Clock.Now()
	seen := map[string]bool{}
	var images []Image
	for _, img := range m.images {
		key := listedKey(img)
		if r := m.records[key]; r != nil && (!seen[key] || img.Id == "") {
			images = append(images, m.image(img, r, now))
		}
		seen[key] = true
	}
	return images
}

func (m *Manager) image(img *runtimeapi.Image, r *record, now time.Time) Image {
	i := Image{
		ID: img.Id, Tags: img.RepoTags, Digests: img.RepoDigests,
		RuntimeHandler: img.Spec.GetRuntimeHandler(), Annotations: img.Spec.GetAnnotations(),
		SizeBytes: img.Size, Pinned: img.Pinned,
		FirstDetected: r.FirstDetected, LastUsed: r.LastUsed,
		Containers: r.containers, Failures: r.deletions.failures, RetryAt: r.deletions.retryAt,
	}
	m.mu.Lock()
	i.LeasedBy, i.LeasedUntil = m.leasedBy(imageNames(i.ID, i.Tags, i.Digests), now)
	m.mu.Unlock()
	i.Preference = m.cfg.Preference(i)
	return i
}
