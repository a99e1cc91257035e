package imagegc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// detect lists images, then containers: an image that comes after the first list
// is not in it, and what was created with one that is, is in the second. Its error
// says that nothing must be deleted; what can be known is noted all the same. An image
// that is new was first seen when the pass began.
func (m *Manager) detect(ctx context.Context, began time.Time) error {
	m.load(ctx, began)
	images, err := m.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	unknown, err := m.listContainers(ctx)
	if err != nil {
		return err
	}
	unsure := m.inspect(ctx, unknown)
	if err := m.note(ctx, images, began); err != nil { // these images stay, the others may go
		m.cfg.Logger.WarnContext(ctx, "labels of images unknown", "err", err)
	}
	m.mu.Lock()
	m.images = images
	m.leases.expire(began)
	m.mu.Unlock()
	m.cfg.Observer.Detected(len(images), len(m.users.containers), len(unknown), m.cfg.Clock.Since(began))
	return unsure
}

// listContainers lists containers and returns those to be inspected.
func (m *Manager) listContainers(ctx context.Context) ([]*runtimeapi.Container, error) {
	at := m.cfg.Clock.Now()
	list, err := m.cfg.Containers.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	m.usersAt = at
	return m.users.listed(list, at), nil
}

// inspect looks into containers. Its error says that nothing must be deleted.
func (m *Manager) inspect(ctx context.Context, unknown []*runtimeapi.Container) error {
	m.users.inspect(ctx, m.cfg.Runtime, unknown, m.cfg.Clock.Now())
	keepAll, ignored := m.users.unsure(m.cfg.Clock.Now())
	if ignored != nil && len(unknown) > 0 {
		m.cfg.Logger.WarnContext(ctx, "containers cannot be inspected: only their own images are kept for them", "err", ignored)
	}
	return keepAll
}

// note brings the records up to date.
func (m *Manager) note(ctx context.Context, images []*runtimeapi.Image, began time.Time) error {
	var errs []error
	var names []string
	now := m.cfg.Clock.Now()
	m.round++
	current := 0
	for _, img := range images {
		if img == nil {
			continue
		}
		handler := img.Spec.GetRuntimeHandler()
		key := imageKey(img.Id, handler)
		r := m.records[key]
		if r == nil {
			r = &record{Age: Age{FirstDetected: began}}
			m.records[key] = r
			m.changed = true
		}
		if r.round != m.round { // listed twice, else
			r.round = m.round
			current++
		}
		names = imageNames(names[:0], img.Id, img.RepoTags, img.RepoDigests)
		users := m.users.of(names, handler)
		if users > 0 {
			r.LastUsed = now
		}
		if (users > 0) != (r.containers > 0) {
			m.changed = true
		}
		r.containers = users
		if err := m.label(ctx, img, r); err != nil {
			errs = append(errs, err)
		}
	}
	if current < len(m.records) {
		for key, r := range m.records {
			if r.round != m.round {
				delete(m.records, key)
				m.changed = true
			}
		}
	}
	return errors.Join(errs...)
}

// label asks for the labels of a new image.
func (m *Manager) label(ctx context.Context, img *runtimeapi.Image, r *record) error {
	if r.labelled || m.cfg.Labels == nil {
		r.labelled = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	spec := &runtimeapi.ImageSpec{Image: img.Id, RuntimeHandler: img.Spec.GetRuntimeHandler()}
	answer, err := m.cfg.Labels.ImageStatus(ctx, spec, true)
	if err == nil {
		r.labels, err = parseLabels(answer.GetInfo()["info"])
	}
	if err != nil {
		return fmt.Errorf("labels of image %s: %w", img.Id, err)
	}
	r.labelled = true
	return nil
}

// parseLabels reads the labels in the verbose info of containerd and of CRI-O. Both
// show the image's OCI config there; an image without any has no labels.
func parseLabels(info string) (map[string]string, error) {
	if info == "" {
		return nil, errors.New("the runtime gives no verbose info")
	}
	var parsed struct {
		ImageSpec struct {
			Config struct{ Labels map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(info), &parsed); err != nil {
		return nil, fmt.Errorf("verbose info: %w", err)
	}
	return parsed.ImageSpec.Config.Labels, nil
}

// snapshot returns what is known of all images, as they were last listed.
func (m *Manager) snapshot() []Image {
	now := m.cfg.Clock.Now()
	m.mu.Lock()
	listed := m.images
	m.mu.Unlock()
	images := make([]Image, 0, len(listed))
	m.shown++
	for _, img := range listed {
		if img == nil {
			continue
		}
		r := m.records[imageKey(img.Id, img.Spec.GetRuntimeHandler())]
		if r == nil || r.shown == m.shown && img.Id != "" { // removed in this pass, or listed twice
			continue
		}
		r.shown = m.shown
		images = append(images, m.image(img, r, now))
	}
	return images
}

func (m *Manager) image(img *runtimeapi.Image, r *record, now time.Time) Image {
	i := Image{
		ID: img.Id, Tags: img.RepoTags, Digests: img.RepoDigests,
		RuntimeHandler: img.Spec.GetRuntimeHandler(), Annotations: img.Spec.GetAnnotations(),
		SizeBytes: img.Size, Pinned: img.Pinned,
		Labels: r.labels, LabelsUnknown: !r.labelled,
		FirstDetected: r.FirstDetected, LastUsed: r.LastUsed,
		Containers: r.containers, Failures: r.failures, RetryAt: r.retryAt,
	}
	m.mu.Lock()
	if len(m.leases) > 0 {
		i.LeasedBy, i.LeasedUntil = m.leases.of(imageNames(nil, i.ID, i.Tags, i.Digests), now)
	}
	m.mu.Unlock()
	i.Preference = m.cfg.preference(i)
	return i
}
