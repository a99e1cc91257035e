package volumes

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Usage returns the usage of the pod's volumes by volume name, as their plugins
// report it. A nil value means that the plugin does not measure the volume, and
// that the agent must measure it. The result omits volumes without a directory,
// volumes of unknown plugins, and volumes whose plugin returned an error. The
// errors are joined. Usage waits for other calls for the same pod.
func (m *Manager) Usage(ctx context.Context, uid types.UID) (map[string]*Usage, error) {
	if !isElement(string(uid)) {
		return nil, fmt.Errorf("volumes: %q is not a pod's UID", uid)
	}
	leave, err := m.lock(ctx, uid)
	if err != nil {
		return nil, err
	}
	defer leave()
	root, err := m.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	folders, err := m.folders(root, uid)
	errs := []error{err}
	all := map[string]*Usage{}
	for _, f := range folders {
		if f.plugin == nil {
			continue
		}
		for _, dir := range f.volumes {
			ref := m.ref(uid, dir)
			usage, err := f.plugin.Usage(ctx, ref)
			if err != nil {
				errs = append(errs, fmt.Errorf("volumes: pod %s: plugin %s can't measure volume %q: %w", uid, f.name, ref.Volume, err))
				continue
			}
			all[ref.Volume] = usage
		}
	}
	return all, errors.Join(errs...)
}
