package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Mount sets up the volumes that a pod's containers use. It returns the paths
// of the volumes on the host, by the volumes' names in the pod. readOnly
// contains the names of the volumes that are read-only whatever the containers
// request. Both maps omit image volumes, because the runtime mounts these
// volumes. If a volume is set up already, Mount updates it. If the update
// fails, for example because the ConfigMap was deleted, the volume keeps its
// old contents. Mount then returns no error for the volume; [Manager.Refresh]
// returns the error.
//
// The error joins an [*Error] for each volume that could not be used. If a
// volume is not supported, Mount sets up no volume. If a volume could not be
// set up, the other volumes remain until [Manager.Unmount]. The pod is not
// modified.
func (m *Manager) Mount(ctx context.Context, pod *corev1.Pod) (paths map[string]string, readOnly map[string]bool, err error) {
	chosen, errs := m.check(pod)
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	b, err := m.begin(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	defer b.end()
	paths, readOnly = map[string]string{}, map[string]bool{}
	for _, c := range chosen {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		began := m.cfg.Clock.Now()
		mount, err := b.mount(ctx, c)
		m.cfg.Observer.Mounted(Operation{
			PodUID: pod.UID, Volume: c.Name, Plugin: c.plugin.Name(), Took: m.cfg.Clock.Since(began), Total: m.cfg.Clock.Since(b.began), Err: err,
		})
		if err != nil {
			errs = append(errs, &Error{Volume: c.Name, Type: c.kind, Err: err})
			continue
		}
		paths[c.Name] = mount.Path
		if mount.ReadOnly {
			readOnly[c.Name] = true
		}
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	return paths, readOnly, nil
}

// Refresh updates those volumes of a pod that have a directory. It ignores the
// other volumes: [Manager.Mount] has not set them up, or their plugin stores
// nothing on the node. The error joins an [*Error] for each volume that could
// not be updated or is not supported. A volume that could not be updated keeps
// its old contents. An emptyDir has no contents to update.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error {
	chosen, errs := m.check(pod)
	chosen = slices.DeleteFunc(chosen, func(c choice) bool {
		_, isEmptyDir := c.plugin.(emptyDirPlugin)
		return isEmptyDir
	})
	if len(chosen) == 0 {
		return errors.Join(errs...)
	}
	b, err := m.begin(ctx, pod)
	if err != nil {
		return err
	}
	defer b.end()
	for _, c := range chosen {
		if err := b.refresh(ctx, c); err != nil {
			errs = append(errs, &Error{Volume: c.Name, Type: c.kind, Err: err})
		}
	}
	return errors.Join(errs...)
}

// A batch is one call of Mount or Refresh, with the state that all volumes of
// the pod share.
type batch struct {
	m     *Manager
	pod   *corev1.Pod
	root  *os.Root
	left  int64 // remaining part of MaxPodBytes
	leave func()
	began time.Time
	// mounts returns the mount table. It reads the table only once.
	mounts func() ([]MountPoint, error)
}

func (m *Manager) begin(ctx context.Context, pod *corev1.Pod) (*batch, error) {
	began := m.cfg.Clock.Now()
	leave, err := m.lock(ctx, pod.UID)
	if err != nil {
		return nil, err
	}
	root, err := m.open()
	if err != nil {
		leave()
		return nil, err
	}
	return &batch{m: m, pod: pod, root: root, left: MaxPodBytes, leave: leave, began: began, mounts: sync.OnceValues(m.cfg.Mounter.Mounts)}, nil
}

func (b *batch) end() {
	_ = b.root.Close()
	b.leave()
}

// mount sets up a volume. It returns no error if the volume is set up but
// outdated.
func (b *batch) mount(ctx context.Context, c choice) (Mount, error) {
	dir := folderOf(b.pod.UID, c.plugin.Name(), c.Name)
	if err := b.root.MkdirAll(path.Dir(dir), 0o750); err != nil {
		return Mount{}, err
	}
	mount, err := b.setUp(ctx, c, dir)
	if isOutdated(err) {
		err = nil // reported by Refresh
	}
	if err == nil && mount.Path == b.m.path(dir) {
		return mount, nil // the directory exists
	}
	if _, statErr := b.root.Lstat(dir); errors.Is(statErr, fs.ErrNotExist) {
		b.removeEmpty(path.Dir(dir))
	}
	return mount, err
}

// removeEmpty removes a plugin's directory and its parents if they are empty.
func (b *batch) removeEmpty(folder string) {
	for ; folder != podsDir; folder = path.Dir(folder) {
		if b.root.Remove(folder) != nil {
			return
		}
	}
}

// refresh updates a volume that has a directory.
func (b *batch) refresh(ctx context.Context, c choice) error {
	dir := folderOf(b.pod.UID, c.plugin.Name(), c.Name)
	_, err := b.root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	began := b.m.cfg.Clock.Now()
	_, err = b.setUp(ctx, c, dir)
	b.m.cfg.Observer.Mounted(Operation{
		PodUID: b.pod.UID, Volume: c.Name, Plugin: c.plugin.Name(), Took: b.m.cfg.Clock.Since(began), Err: err,
	})
	return err
}

func (b *batch) setUp(ctx context.Context, c choice, dir string) (Mount, error) {
	r := Request{Ref: b.m.ref(b.pod.UID, dir), Pod: b.pod, Spec: c.Volume, Objects: b.m.cfg.Objects, Tokens: b.m.cfg.Tokens, batch: b}
	if r.Objects == nil {
		r.Objects = noObjects{}
	}
	if r.Tokens == nil {
		r.Tokens = noTokens
	}
	mount, err := c.plugin.SetUp(ctx, r)
	if (err == nil || isOutdated(err)) && !filepath.IsAbs(mount.Path) {
		return Mount{}, fmt.Errorf("plugin %s returned path %q, which is not absolute", c.plugin.Name(), mount.Path)
	}
	return mount, err
}

func isOutdated(err error) bool {
	_, ok := errors.AsType[*OutdatedError](err)
	return ok
}

// noObjects is an Objects whose calls fail.
type noObjects struct{}

// ConfigMap returns an error.
func (noObjects) ConfigMap(_ context.Context, _ *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	return nil, fmt.Errorf("configmap %q: ConfigMaps are not available on this node", name)
}

// Secret returns an error.
func (noObjects) Secret(_ context.Context, _ *corev1.Pod, name string) (*corev1.Secret, error) {
	return nil, fmt.Errorf("secret %q: secrets are not available on this node", name)
}

// Release does nothing.
func (noObjects) Release(types.UID) {}

func noTokens(context.Context, *corev1.Pod, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return nil, errors.New("service account tokens are not available on this node")
}
