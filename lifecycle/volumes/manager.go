package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/podlock"
)

// Manager uses plugins to mount and remove the volumes of pods. Create it with
// [New]. All methods are safe for concurrent use; calls for the same pod wait
// for each other.
type Manager struct {
	cfg      Config
	plugins  []Plugin          // in the order in which they are tried
	byFolder map[string]Plugin // plugins by the names of their directories
	locks    podlock.Locks
}

// New returns a Manager. It changes nothing on the node. The error reports
// every problem with cfg.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("volumes: invalid config: %w", err)
	}
	m := &Manager{cfg: cfg.withDefaults(), byFolder: map[string]Plugin{}}
	m.plugins = slices.Concat(cfg.Plugins, builtIn(&m.cfg))
	for _, p := range m.plugins {
		m.byFolder[folderName(p.Name())] = p
	}
	return m, nil
}

// Unsupported returns an error if the pod must be rejected because of its
// volumes. The error names every volume that is invalid or that no plugin
// supports, with its field in the pod. Unsupported ignores volumes that no
// container uses, as in the kubelet.
func (m *Manager) Unsupported(pod *corev1.Pod) error {
	_, problems := m.choose(pod)
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s: volume %q: %w", p.field, p.Volume, p.Err))
	}
	return errors.Join(errs...)
}

// check returns the plugin of each volume. It returns an error if the pod's UID
// is not a valid directory name, and an error for each unsupported volume.
func (m *Manager) check(pod *corev1.Pod) (chosen []choice, errs []error) {
	if pod == nil || !isElement(string(pod.UID)) {
		return nil, []error{errors.New("volumes: the pod has no valid UID")}
	}
	chosen, problems := m.choose(pod)
	for _, p := range problems {
		errs = append(errs, p.Error)
	}
	return chosen, errs
}

// A choice is a volume with the plugin that supports it.
type choice struct {
	*corev1.Volume
	kind   string
	plugin Plugin
}

// A problem describes why a volume is rejected. field is the field of the pod
// that has the problem.
type problem struct {
	*Error
	field string
}

// choose returns the plugin of each volume that the pod's containers use, in
// spec order. It omits image volumes, because the runtime mounts them.
func (m *Manager) choose(pod *corev1.Pod) (chosen []choice, problems []problem) {
	seen := map[string]bool{}
	for i, v := range used(pod) {
		kind, at := kindOf(&v.VolumeSource), fmt.Sprintf("spec.volumes[%d]", i)
		field := at + "." + kind
		var plugin Plugin
		var err error
		switch {
		case !isElement(v.Name):
			field, err = at+".name", errors.New("the name is not a valid volume name")
		case seen[v.Name]:
			field, err = at+".name", errors.New("the pod has several volumes of this name")
		case strings.Contains(kind, ","):
			field, err = at, fmt.Errorf("may not specify more than 1 volume type: %s", kind)
		case v.Image == nil:
			plugin, err = m.pluginOf(pod, v, kind)
		}
		seen[v.Name] = true
		switch {
		case err != nil:
			problems = append(problems, problem{&Error{Volume: v.Name, Type: kind, Err: err}, field})
		case plugin != nil:
			chosen = append(chosen, choice{v, kind, plugin})
		}
	}
	return chosen, problems
}

// pluginOf returns the first plugin that supports the volume.
func (m *Manager) pluginOf(pod *corev1.Pod, v *corev1.Volume, kind string) (Plugin, error) {
	for _, p := range m.plugins {
		if ok, err := p.Supports(pod, v); err != nil || ok {
			return p, err
		}
	}
	return nil, fmt.Errorf("volume type %s is not supported", kind)
}

// isElement reports whether name is a single path element.
func isElement(name string) bool {
	return name != "." && fs.ValidPath(name) && !strings.ContainsAny(name, "/\\\x00") && len(name) <= maxName
}

// kindOf returns the API field of a volume's source. If several sources are
// set, it returns all their fields, separated by commas. A volume without a
// source is an emptyDir.
func kindOf(source *corev1.VolumeSource) string {
	return cmp.Or(fieldsOf(source), "emptyDir")
}

// fieldsOf returns the names of the fields that are set in a part of an API
// object, separated by commas.
func fieldsOf[T corev1.VolumeSource | corev1.VolumeProjection](part *T) string {
	var names []string
	for f, value := range reflect.ValueOf(part).Elem().Fields() {
		if !value.IsZero() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// used yields the volumes that containers mount, with their indexes in the
// spec. Other volumes are ignored, as in the kubelet.
func used(pod *corev1.Pod) iter.Seq2[int, *corev1.Volume] {
	names := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			names[m.Name] = true
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		for _, m := range c.VolumeMounts {
			names[m.Name] = true
		}
	}
	return func(yield func(int, *corev1.Volume) bool) {
		for i := range pod.Spec.Volumes {
			if v := &pod.Spec.Volumes[i]; names[v.Name] && !yield(i, v) {
				return
			}
		}
	}
}

// Pods returns the UIDs of the pods that have a directory below Root, sorted.
// After a restart of the agent, the caller can call [Manager.Unmount] for pods
// that no longer exist, to remove their volumes.
func (m *Manager) Pods() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(m.cfg.Root, podsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, nil
}

// lock waits for the pod's lock.
func (m *Manager) lock(ctx context.Context, uid types.UID) (leave func(), err error) {
	leave, err = m.locks.Lock(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("volumes: wait for another call for pod %s: %w", uid, err)
	}
	return leave, nil
}

// open creates the root directory if it is missing, and opens it. All access
// below goes through os.Root, so that names and links can't lead out of the
// root.
func (m *Manager) open() (*os.Root, error) {
	if err := os.MkdirAll(m.cfg.Root, 0o750); err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	root, err := os.OpenRoot(m.cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	return root, nil
}
