package volumes

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Usage returns what the pod's volumes use, by their names, as their plugins report it. Nil
// is a volume that the node measures by itself. Volumes without a folder and those of
// unknown plugins are missing, and so are those with an error; the errors are joined. Usage
// waits for other calls for the pod.
func (m *Manager) Usage(ctx context.Context, uid types.UID) (map[string]*Usage, error) {
	if !isElement(string(uid)) {
		return nil, fmt.Errorf("volumes: %q is not a pod's UID", uid)
	}
	leave, err := m.enter(ctx, uid)
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
