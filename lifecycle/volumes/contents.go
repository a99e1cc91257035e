package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	corev1 "k8s.io/api/core/v1"
)

// contents is the common part of the plugins whose files the agent writes and
// updates.
type contents struct {
	local

	// kept is where the files are stored.
	kept medium
}

// A medium is where a volume's files are stored. The files of Secrets, and of
// types that may contain secrets, are never stored on disk.
type medium int

const (
	onDisk medium = iota
	inMemory
)

// setUp sets up the volume with the files that the given function adds to the
// payload.
func (c contents) setUp(r Request, fill func(*payloadBuilder, payload) error) (Mount, error) {
	ready := Mount{Path: r.Dir, ReadOnly: true}
	err := c.fill(r, fill)
	if err == nil {
		return ready, nil
	}
	dir := c.dir(r.Ref)
	if filled, readErr := isFilled(r.batch.root, dir); !filled {
		return Mount{}, errors.Join(err, readErr)
	}
	return ready, &OutdatedError{Err: err}
}

func (c contents) fill(r Request, fill func(*payloadBuilder, payload) error) error {
	p := payload{}
	// Build the payload before the directory is created, so that no directory
	// remains after a failure.
	if err := fill(&payloadBuilder{Request: r, allocatable: c.cfg.allocatable()}, p); err != nil {
		return err
	}
	if err := p.validate(); err != nil {
		return err
	}
	var err error
	if c.kept == inMemory {
		err = c.memoryFolder(r, 0)
	} else {
		err = c.folder(r)
	}
	if err != nil {
		return err
	}
	return c.write(r.batch.root, r.Pod, c.dir(r.Ref), p)
}

// isFilled reports whether a volume has a version of its contents. SetUp
// creates the link to the version only after the tmpfs is mounted and the
// version is complete.
func isFilled(root *os.Root, dir string) (bool, error) {
	_, err := root.Readlink(path.Join(dir, dataLink))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write replaces the contents of a volume's directory with p.
func (c contents) write(root *os.Root, pod *corev1.Pod, dir string, p payload) error {
	volume, err := root.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = volume.Close() }()
	_, err = writer{root: volume, group: fsGroup(pod), now: c.cfg.Clock.Now()}.write(p)
	return err
}

type configMapPlugin struct{ contents }

// Supports implements [Plugin].
func (c configMapPlugin) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	if v.ConfigMap != nil && c.cfg.Objects == nil {
		return false, fmt.Errorf("configmap %q: ConfigMaps are not available on this node", v.ConfigMap.Name)
	}
	return v.ConfigMap != nil, nil
}

// SetUp implements [Plugin].
func (c configMapPlugin) SetUp(ctx context.Context, r Request) (Mount, error) {
	s := r.Spec.ConfigMap
	return c.setUp(r, func(m *payloadBuilder, p payload) error {
		return m.configMap(ctx, p, s.Name, selection{items: s.Items, mode: modeOr(s.DefaultMode), optional: s.Optional})
	})
}

type secretPlugin struct{ contents }

// Supports implements [Plugin].
func (c secretPlugin) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	if v.Secret != nil && c.cfg.Objects == nil {
		return false, fmt.Errorf("secret %q: secrets are not available on this node", v.Secret.SecretName)
	}
	return v.Secret != nil, nil
}

// SetUp implements [Plugin].
func (c secretPlugin) SetUp(ctx context.Context, r Request) (Mount, error) {
	s := r.Spec.Secret
	return c.setUp(r, func(m *payloadBuilder, p payload) error {
		return m.secret(ctx, p, s.SecretName, selection{items: s.Items, mode: modeOr(s.DefaultMode), optional: s.Optional})
	})
}

type downwardPlugin struct{ contents }

// Supports implements [Plugin].
func (downwardPlugin) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	return v.DownwardAPI != nil, nil
}

// SetUp implements [Plugin].
func (c downwardPlugin) SetUp(_ context.Context, r Request) (Mount, error) {
	s := r.Spec.DownwardAPI
	return c.setUp(r, func(m *payloadBuilder, p payload) error { return m.downward(p, s.Items, modeOr(s.DefaultMode)) })
}

type projectedPlugin struct{ contents }

// Supports implements [Plugin].
func (c projectedPlugin) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	if v.Projected == nil {
		return false, nil
	}
	var errs []error
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		problem := ""
		switch {
		case s.ConfigMap != nil && c.cfg.Objects == nil:
			problem = "ConfigMaps are not available on this node"
		case s.Secret != nil && c.cfg.Objects == nil:
			problem = "secrets are not available on this node"
		case s.ServiceAccountToken != nil && c.cfg.Tokens == nil:
			problem = "service account tokens are not available on this node"
		case s.ConfigMap == nil && s.Secret == nil && s.DownwardAPI == nil && s.ServiceAccountToken == nil:
			problem = "this projected source is not supported"
		default:
			continue
		}
		errs = append(errs, fmt.Errorf("projected.sources[%d].%s: %s", i, fieldsOf(s), problem))
	}
	return true, errors.Join(errs...)
}

// SetUp implements [Plugin].
func (c projectedPlugin) SetUp(ctx context.Context, r Request) (Mount, error) {
	return c.setUp(r, func(m *payloadBuilder, p payload) error { return m.projected(ctx, p, r.Spec.Projected) })
}
