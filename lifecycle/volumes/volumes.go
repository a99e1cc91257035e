package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/podlock"
)

// The kubelet's folders: pods/UID/volumes/PLUGIN/NAME.
const (
	podsDir    = "pods"
	volumesDir = "volumes"
)

// Local is the volumes that need nothing but this node. Make it with [New]; all
// methods are safe for concurrent use, and one pod's calls wait for each other.
type Local struct {
	cfg   Config
	turns podlock.Locks
}

// New returns a Local that has done nothing yet. The error reports every problem
// with cfg.
func New(cfg Config) (*Local, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("volumes: invalid config: %w", err)
	}
	return &Local{cfg: cfg.withDefaults()}, nil
}

// Mount makes ready the volumes that a pod's containers use, and returns where each
// is on the host, by its name in the pod. Image volumes are not among them: the
// runtime mounts those. What is ready already stays, with its contents; those of
// configMap, secret, downwardAPI and projected volumes are brought up to date. One
// of those for which that fails, because its ConfigMap was deleted for example, is
// still ready: [Local.Refresh] returns why it shows what it showed before.
//
// The error is every [*Error], joined. If a volume is of a kind that is not
// supported, nothing has been done; otherwise what could be mounted is, until
// [Local.Unmount]. The pod is not modified.
func (l *Local) Mount(ctx context.Context, pod *corev1.Pod) (paths map[string]string, err error) {
	if err := check(pod); err != nil {
		return nil, err
	}
	leave, err := l.enter(ctx, pod.UID)
	if err != nil {
		return nil, err
	}
	defer leave()
	root, err := l.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	paths = map[string]string{}
	m := newMaker(&l.cfg, pod)
	var errs []error
	for _, v := range used(pod) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at, err := l.mount(ctx, root, m, v)
		switch {
		case err != nil:
			errs = append(errs, &Error{Volume: v.Name, Type: kindOf(&v.VolumeSource), Err: err})
		case at != "":
			paths[v.Name] = at
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return paths, nil
}

// Refresh brings the configMap, secret, downwardAPI and projected volumes of a pod
// up to date. Volumes that are not mounted are left alone. The error is every
// [*Error], joined; a volume with one shows what it showed before.
func (l *Local) Refresh(ctx context.Context, pod *corev1.Pod) error {
	if err := check(pod); err != nil {
		return err
	}
	leave, err := l.enter(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer leave()
	root, err := l.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	m := newMaker(&l.cfg, pod)
	var errs []error
	for _, v := range used(pod) {
		if err := l.refresh(ctx, root, m, v); err != nil {
			errs = append(errs, &Error{Volume: v.Name, Type: kindOf(&v.VolumeSource), Err: err})
		}
	}
	return errors.Join(errs...)
}

func (l *Local) refresh(ctx context.Context, root *os.Root, m *maker, v *corev1.Volume) error {
	p, err := m.make(ctx, &v.VolumeSource)
	if err != nil || p == nil {
		return err
	}
	dir := folderOf(m.pod.UID, v)
	if ready, err := isFilled(root, dir); !ready {
		return err
	}
	return l.write(root, m.pod, dir, p)
}

// Unmount removes a pod's volumes and all that is in them, whether or not Mount
// knew of them, and the pod's folder if nothing else is in it; hostPath volumes
// stay as they are. Whatever is mounted in the
// pod's folder is unmounted first. If that fails, or something appears there,
// nothing is removed. A pod without volumes is fine.
func (l *Local) Unmount(ctx context.Context, uid types.UID) error {
	if !isElement(string(uid)) {
		return fmt.Errorf("volumes: %q is not a pod's UID", uid)
	}
	leave, err := l.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := os.Stat(l.cfg.Root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	root, err := l.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	dir := path.Join(podsDir, string(uid))
	all := path.Join(dir, volumesDir)
	info, err := root.Lstat(dir)
	_, errAll := root.Lstat(all)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(errAll, fs.ErrNotExist): // nothing was ever mounted, or all is removed
		_ = root.Remove(dir)
		return nil
	}
	if err := l.unmountBelow(ctx, dir); err != nil {
		return fmt.Errorf("volumes: pod %s: %w", uid, err)
	}
	if info == nil || info.IsDir() { // a link in its place goes, not what it leads to
		if err := (&remover{root: root}).remove(root, all, all, 0); err != nil {
			return fmt.Errorf("volumes: pod %s: %w", uid, err)
		}
	}
	_ = root.Remove(dir) // what else is in it is not ours
	return nil
}

// unmountBelow unmounts what is mounted in a folder, and looks whether that worked.
func (l *Local) unmountBelow(ctx context.Context, dir string) error {
	targets, err := l.mounted(dir)
	if err != nil || len(targets) == 0 {
		return err
	}
	var errs []error
	for _, target := range targets {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, l.cfg.Mounter.Unmount(target))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if targets, err = l.mounted(dir); err != nil || len(targets) == 0 {
		return err
	}
	return fmt.Errorf("still mounted: %s", strings.Join(targets, ", "))
}

// mounted returns the mount points at or below a folder. What can't be known is
// an error: removing through a mount is worse than leaving something behind.
func (l *Local) mounted(dir string) ([]string, error) {
	mounts, err := l.cfg.Mounter.Mounts()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	root, err := filepath.EvalSymlinks(l.cfg.Root) // mounts are listed by their true paths
	if err != nil {
		return nil, err
	}
	return below(mounts, path.Join(filepath.ToSlash(root), dir)), nil
}

// Pods returns the pods that have folders here, sorted. After a restart of the
// agent, those that are wanted no more can be cleaned up by [Local.Unmount].
func (l *Local) Pods() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(l.cfg.Root, podsDir))
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

// enter waits for the pod's turn.
func (l *Local) enter(ctx context.Context, uid types.UID) (leave func(), err error) {
	leave, err = l.turns.Lock(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("volumes: wait for another call for pod %s: %w", uid, err)
	}
	return leave, nil
}

// open opens the root. All that is done below goes through it, so that neither
// names nor links lead out.
func (l *Local) open() (*os.Root, error) {
	if err := os.MkdirAll(l.cfg.Root, 0o750); err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	root, err := os.OpenRoot(l.cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	return root, nil
}

// check refuses pods whose names would be others' folders, and all volumes that
// are not supported.
func check(pod *corev1.Pod) error {
	if pod == nil || !isElement(string(pod.UID)) {
		return errors.New("volumes: a pod without a valid UID")
	}
	var errs []error
	seen := map[string]bool{}
	for _, v := range used(pod) {
		kind := kindOf(&v.VolumeSource)
		err := supported(v, kind)
		if seen[v.Name] {
			err = errors.New("there are several volumes of this name")
		}
		seen[v.Name] = true
		if err != nil {
			errs = append(errs, &Error{Volume: v.Name, Type: kind, Err: err})
		}
	}
	return errors.Join(errs...)
}

func supported(v *corev1.Volume, kind string) error {
	switch {
	case !isElement(v.Name):
		return errors.New("the name is not a volume's")
	case strings.Contains(kind, ","):
		return fmt.Errorf("may not specify more than 1 volume type: %s", kind)
	}
	switch kind {
	case "emptyDir":
		if e := v.EmptyDir; e != nil && e.Medium != corev1.StorageMediumDefault && e.Medium != corev1.StorageMediumMemory {
			return fmt.Errorf("emptyDir with medium %s is not supported", e.Medium)
		}
	case "hostPath", "configMap", "secret", "downwardAPI", "projected", "image":
	default:
		return fmt.Errorf("volume type %s is not supported", kind)
	}
	return nil
}

// isElement says whether a name is one folder's.
func isElement(name string) bool {
	return name != "." && fs.ValidPath(name) && !strings.ContainsAny(name, "/\\\x00") && len(name) <= maxName
}

// kindOf names the API's field that says what a volume is, or several. A volume
// that does not say is an emptyDir.
func kindOf(source *corev1.VolumeSource) string {
	data, err := json.Marshal(source)
	fields := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		return "unknown"
	}
	if len(fields) == 0 {
		return "emptyDir"
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// used returns the volumes that containers mount, in the spec's order. Nothing is
// done about the others, as with the kubelet.
func used(pod *corev1.Pod) (all []*corev1.Volume) {
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
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; names[v.Name] {
			all = append(all, v)
		}
	}
	return all
}
