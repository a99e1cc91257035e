package volumes

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Usage returns the usage of the pod's volumes, by name, as their plugins
// report it. Nil means that the agent measures the volume itself. Volumes
// without a directory, of unknown plugins, or with an error are missing; the
// errors are joined. Usage waits for other calls for the pod.
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
