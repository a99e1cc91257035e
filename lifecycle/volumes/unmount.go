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

// Unmount removes a pod's volumes and all that is in them, whether or not Mount
// knew of them, and the pod's folder if nothing else is in it; hostPath volumes
// stay as they are. Each volume is torn down by the plugin of its folder. Whatever is
// mounted in the pod's folder is unmounted first. If that fails, or something appears
// there, nothing is removed. A pod without volumes is fine.
//
// A volume that its plugin can't tear down, and one of a plugin that this Manager does not
// have, are errors. Nothing is done in their folders, which stay, and the pod's other
// volumes are removed.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	if !isElement(string(uid)) {
		return fmt.Errorf("volumes: %q is not a pod's UID", uid)
	}
	leave, err := m.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := os.Stat(m.cfg.Root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	root, err := m.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	dir := path.Join(podsDir, string(uid))
	_, err = root.Lstat(dir)
	_, errAll := root.Lstat(path.Join(dir, volumesDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(errAll, fs.ErrNotExist): // nothing was ever mounted, or all is removed
		_ = root.Remove(dir)
		return nil
	}
	e := ending{Manager: m, root: root, uid: uid, dir: dir}
	if err := e.run(ctx); err != nil {
		return fmt.Errorf("volumes: pod %s: %w", uid, err)
	}
	_ = root.Remove(dir) // what else is in it is not ours
	return nil
}

// An ending is the removal of a pod's volumes.
type ending struct {
	*Manager

	root *os.Root
	uid  types.UID
	dir  string // of the pod, below the root

	plugins []string // folders of plugins, below the root
	volumes []string // folders of volumes that are torn down
	stay    []string // folders in which nothing is done
	errs    []error  // why
}

func (e *ending) run(ctx context.Context) error {
	folders, err := e.folders(e.root, e.uid)
	if err != nil {
		return err
	}
	for _, f := range folders {
		if f.plugin == nil && !f.empty() {
			e.stay = append(e.stay, f.dir)
			e.errs = append(e.errs, fmt.Errorf("plugin %q is unknown to this agent: its volumes stay in %s", f.name, e.path(f.dir)))
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

// tearDown has the plugin tear a volume down.
func (e *ending) tearDown(ctx context.Context, p Plugin, dir string) {
	ref := e.ref(e.uid, dir)
	if err := p.TearDown(ctx, ref); err != nil {
		e.stay = append(e.stay, dir)
		e.errs = append(e.errs, fmt.Errorf("plugin %s can't tear down volume %q: %w", p.Name(), ref.Volume, err))
		return
	}
	e.volumes = append(e.volumes, dir)
}

// unmount unmounts what is mounted in the pod's folder, except in folders that stay, and
// looks whether that worked.
func (e *ending) unmount(ctx context.Context) error {
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
	return fmt.Errorf("still mounted: %s", strings.Join(targets, ", "))
}

// mounted returns the mount points that are to be unmounted. What can't be known is
// an error: removing through a mount is worse than leaving something behind.
func (e *ending) mounted() ([]string, error) {
	mounts, err := e.cfg.Mounter.Mounts()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	top, err := filepath.EvalSymlinks(e.cfg.Root) // mounts are listed by their true paths
	if err != nil {
		return nil, err
	}
	top = filepath.ToSlash(top)
	return slices.DeleteFunc(below(mounts, path.Join(top, e.dir)), func(target string) bool {
		return slices.ContainsFunc(e.stay, func(dir string) bool { return isBelow(target, path.Join(top, dir)) })
	}), nil
}
