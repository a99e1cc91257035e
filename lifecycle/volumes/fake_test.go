package volumes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mounter mounts nothing and records its calls.
type mounter struct {
	mu     sync.Mutex
	mounts []volumes.MountPoint
	sizes  map[string]int64
	// stuck is a target whose unmount fails. tmpfsErr and mountsErr are the errors of Tmpfs
	// and Mounts.
	stuck               string
	tmpfsErr, mountsErr error
	// onUnmount is called with every target.
	onUnmount func(target string)
}

func (m *mounter) Tmpfs(target string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tmpfsErr != nil {
		return m.tmpfsErr
	}
	if m.sizes == nil {
		m.sizes = map[string]int64{}
	}
	m.sizes[target] = size
	m.mounts = append(m.mounts, volumes.MountPoint{Target: target, FSType: "tmpfs"})
	return nil
}

func (m *mounter) Unmount(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.onUnmount != nil {
		m.onUnmount(target)
	}
	if target == m.stuck {
		return &os.PathError{Op: "unmount", Path: target, Err: errors.New("device or resource busy")}
	}
	for i, mount := range slices.Backward(m.mounts) {
		if mount.Target == target {
			m.mounts = slices.Delete(m.mounts, i, i+1)
			return nil
		}
	}
	return os.ErrNotExist
}

func (m *mounter) Mounts() ([]volumes.MountPoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mounts), m.mountsErr
}

func (m *mounter) targets() (targets []string) {
	mounts, _ := m.Mounts()
	for _, mount := range mounts {
		targets = append(targets, mount.Target)
	}
	return targets
}

// objects are the ConfigMaps and Secrets of the namespace default.
type objects struct {
	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	err        error
}

func (o *objects) ConfigMap(_ context.Context, _ *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.configMaps[name] == nil && o.err == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return o.configMaps[name], o.err
}

func (o *objects) Secret(_ context.Context, _ *corev1.Pod, name string) (*corev1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.secrets[name] == nil && o.err == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return o.secrets[name], o.err
}

func (*objects) Release(types.UID) {}

// set sets a ConfigMap.
func (o *objects) set(name string, data map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.configMaps[name] = &corev1.ConfigMap{Data: data}
}

// node is a Manager with fakes of all its collaborators.
type node struct {
	*volumes.Manager
	root    string
	mounter *mounter
	objects *objects
	clock   *testingclock.FakeClock
}

func newNode(t *testing.T, change func(*volumes.Config)) *node {
	t.Helper()
	n := &node{
		root: t.TempDir(), mounter: &mounter{}, clock: testingclock.NewFakeClock(testTime()),
		objects: &objects{
			configMaps: map[string]*corev1.ConfigMap{"cm": {Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"bin": {0, 1}}}},
			secrets:    map[string]*corev1.Secret{"s": {Data: map[string][]byte{"user": []byte("me"), "pass": []byte("word")}}},
		},
	}
	cfg := volumes.Config{Root: n.root, Mounter: n.mounter, Objects: n.objects, Clock: n.clock}
	if change != nil {
		change(&cfg)
	}
	n.root = cfg.Root
	var err error
	n.Manager, err = volumes.New(cfg)
	require.NoError(t, err)
	return n
}

// Mount calls Manager.Mount and drops the read-only names.
func (n *node) Mount(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	paths, _, err := n.Manager.Mount(ctx, pod)
	return paths, err
}

// podOf returns a pod whose container mounts each of the volumes.
func podOf(all ...corev1.Volume) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "uid-1",
			Labels: map[string]string{"app": "web", "tier": `a"b`}, Annotations: map[string]string{"note": "x\ny"},
		},
		Spec: corev1.PodSpec{Volumes: all, Containers: []corev1.Container{{Name: "main"}}},
	}
	for _, v := range all {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name})
	}
	return p
}

func vol(name string, source corev1.VolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: source}
}

func configMap(name string) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

// in returns the contents of a volume: the files by path, with their modes.
func in(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name()[0] == '.' && len(e.Name()) > 1 && e.Name()[1] == '.' {
			continue
		}
		top, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		require.NoError(t, filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			rel, err := filepath.Rel(top, path)
			require.NoError(t, err)
			files[filepath.Join(e.Name(), rel)] = info.Mode().String() + " " + string(data)
			return nil
		}))
	}
	return files
}

func testTime() time.Time { return time.Date(2026, 11, 21, 8, 0, 0, 5, time.UTC) }
