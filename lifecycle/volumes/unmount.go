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
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Unmount removes a pod's volumes with their contents, even if another Manager
// has mounted them, and then the pod's directory if it is empty. The data of
// hostPath volumes stays. First, plugins tear their volumes down. Then Unmount
// unmounts everything that is mounted in the pod's directory. If that fails, or
// if a new mount appears there, Unmount removes nothing. It returns nil if the
// pod has no volumes.
//
// Unmount returns an error if a plugin can't tear a volume down, or if this
// Manager does not have the plugin of a volume. It does not touch the
// directories of these volumes, and removes the pod's other volumes.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	err := m.unmount(ctx, uid)
	if err == nil {
		m.cfg.Observer.Unmounted(uid)
	}
	return err
}

func (m *Manager) unmount(ctx context.Context, uid types.UID) error {
	if !isElement(string(uid)) {
		return fmt.Errorf("volumes: %q is not a pod's UID", uid)
	}
	leave, err := m.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer leave()
	root, err := os.OpenRoot(m.cfg.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("volumes: %w", err)
	}
	defer func() { _ = root.Close() }()
	dir := path.Join(podsDir, string(uid))
	if _, err := root.Lstat(path.Join(dir, volumesDir)); errors.Is(err, fs.ErrNotExist) {
		_ = root.Remove(dir) // the pod has no volumes, or all of them are removed
		return nil
	}
	e := teardown{Manager: m, root: root, uid: uid, dir: dir}
	if err := e.run(ctx); err != nil {
		return fmt.Errorf("volumes: pod %s: %w", uid, err)
	}
	_ = root.Remove(dir) // ignore the error: the directory may contain other files
	return nil
}

// A teardown is the removal of a pod's volumes.
type teardown struct {
	*Manager

	root *os.Root
	uid  types.UID
	dir  string // of the pod, below the root

	plugins []string // directories of plugins, below the root
	volumes []string // directories of volumes that were torn down
	kept    []string // directories that must not be touched
	errs    []error  // errors of plugins and removals
}

func (e *teardown) run(ctx context.Context) error {
	folders, err := e.folders(e.root, e.uid)
	if err != nil {
		return err
	}
	for _, f := range folders {
		if f.plugin == nil && !f.empty() {
			e.kept = append(e.kept, f.dir)
			e.errs = append(e.errs, fmt.Errorf("plugin %q is unknown to this agent, so its volumes remain in %s", f.name, e.path(f.dir)))
			continue
		}
		e.plugins = append(e.plugins, f.dir)
		for _, dir := range f.volumes {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e.tearDown(ctx, f.plugin, dir)
		}
	}
	if err := e.unmount(ctx); err != nil {
		return errors.Join(append(e.errs, err)...)
	}
	for _, dir := range e.volumes {
		if err := (&remover{root: e.root}).remove(e.root, dir, dir, volumeDepth); err != nil {
			e.errs = append(e.errs, err)
		}
	}
	if len(e.errs) == 0 && isFolder(e.root, e.dir) {
		for _, dir := range append(e.plugins, path.Join(e.dir, volumesDir)) {
			e.errs = append(e.errs, removed(e.root.Remove(dir)))
		}
	}
	return errors.Join(e.errs...)
}

// tearDown calls the plugin to tear a volume down.
func (e *teardown) tearDown(ctx context.Context, p Plugin, dir string) {
	ref := e.ref(e.uid, dir)
	began := e.cfg.Clock.Now()
	err := p.TearDown(ctx, ref)
	e.cfg.Observer.TornDown(Operation{PodUID: e.uid, Volume: ref.Volume, Plugin: p.Name(), Took: e.cfg.Clock.Since(began), Err: err})
	if err != nil {
		e.kept = append(e.kept, dir)
		e.errs = append(e.errs, fmt.Errorf("plugin %s can't tear down volume %q: %w", p.Name(), ref.Volume, err))
		return
	}
	e.volumes = append(e.volumes, dir)
}

// unmount unmounts everything in the pod's directory, except in the directories
// in e.kept. Then it checks that nothing is mounted there any more.
func (e *teardown) unmount(ctx context.Context) error {
	targets, err := e.mounted()
	if err != nil || len(targets) == 0 {
		return err
	}
	var errs []error
	for _, target := range targets {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, e.cfg.Mounter.Unmount(target))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if targets, err = e.mounted(); err != nil || len(targets) == 0 {
		return err
	}
	return fmt.Errorf("still mounted after unmounting: %s", strings.Join(targets, ", "))
}

// mounted returns the mount points that must be unmounted. It returns an error
// if the mount table can't be read: then no files are removed, because they
// could be removed through a mount.
func (e *teardown) mounted() ([]string, error) {
	mounts, err := e.cfg.Mounter.Mounts()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	top, err := filepath.EvalSymlinks(e.cfg.Root) // the mount table contains resolved paths
	if err != nil {
		return nil, err
	}
	top = filepath.ToSlash(top)
	return slices.DeleteFunc(below(mounts, path.Join(top, e.dir)), func(target string) bool {
		return slices.ContainsFunc(e.kept, func(dir string) bool { return isBelow(target, path.Join(top, dir)) })
	}), nil
}
