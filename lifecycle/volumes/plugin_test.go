package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// disks is a custom volume type: a csi volume of its driver is a directory with
// a file.
type disks struct {
	driver string

	mu       sync.Mutex
	calls    []string
	err      error // error of SetUp, TearDown and Usage
	noFolder bool
	usage    *volumes.Usage
}

func (d *disks) note(call string, r volumes.Ref) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, fmt.Sprintf("%s %s/%s", call, r.PodUID, r.Volume))
	return d.err
}

func (d *disks) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

func (d *disks) Name() string { return "example.com/" + d.driver }

func (d *disks) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	switch {
	case v.Image != nil:
		return true, errors.New("an image volume was offered")
	case v.CSI == nil || v.CSI.Driver != d.driver:
		return false, nil
	case v.CSI.FSType != nil && *v.CSI.FSType != "ext4":
		return true, fmt.Errorf("csi.fsType: %s is not supported", *v.CSI.FSType)
	}
	return true, nil
}

func (d *disks) SetUp(ctx context.Context, r volumes.Request) (volumes.Mount, error) {
	if r.Pod == nil || r.Spec.Name != r.Volume || r.Objects == nil || r.Tokens == nil {
		return volumes.Mount{}, errors.New("the request is not complete")
	}
	if d.noFolder {
		return volumes.Mount{Path: "/elsewhere"}, d.note("set up", r.Ref)
	}
	if err := os.Mkdir(r.Dir, 0o750); err != nil && !os.IsExist(err) {
		return volumes.Mount{}, err
	}
	if err := d.note("set up", r.Ref); err != nil {
		return volumes.Mount{Path: r.Dir}, err
	}
	secret, err := r.Objects.Secret(ctx, r.Pod, "s")
	if err != nil {
		return volumes.Mount{}, err
	}
	m := volumes.Mount{Path: r.Dir, ReadOnly: r.Spec.CSI.ReadOnly != nil && *r.Spec.CSI.ReadOnly}
	return m, os.WriteFile(filepath.Join(r.Dir, "user"), secret.Data["user"], 0o600)
}

func (d *disks) TearDown(_ context.Context, r volumes.Ref) error { return d.note("tear down", r) }

func (d *disks) Usage(_ context.Context, r volumes.Ref) (*volumes.Usage, error) {
	return d.usage, d.note("usage", r)
}

func csi(driver string) corev1.VolumeSource {
	return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver, ReadOnly: new(true)}}
}

func withPlugins(all ...volumes.Plugin) func(*volumes.Config) {
	return func(c *volumes.Config) { c.Plugins = all }
}

// restarted returns another agent's Manager on n's node.
func (n *node) restarted(t *testing.T, plugins ...volumes.Plugin) *node {
	t.Helper()
	return newNode(t, func(c *volumes.Config) {
		c.Root, c.Mounter, c.Objects, c.Plugins = n.root, n.mounter, n.objects, plugins
	})
}

func TestPlugin_WholeLife(t *testing.T) {
	t.Parallel()
	d := &disks{driver: "disks"}
	n := newNode(t, withPlugins(d))
	p := podOf(vol("data", csi("disks")), vol("e", emptyDir()))
	require.NoError(t, n.Unsupported(p))
	require.NoError(t, n.Refresh(t.Context(), p))
	require.Empty(t, d.take(), "an unchanged volume must not be updated")

	// A failed SetUp prevents the start of the pod, even if it returns a path, and is
	// repeated.
	d.err = errors.New("no such disk")
	paths, readOnly, err := n.Manager.Mount(t.Context(), p)
	require.EqualError(t, err, `MountVolume.SetUp failed for volume "data" : no such disk`)
	require.Nil(t, paths)
	require.Nil(t, readOnly)
	d.err = nil
	for range 2 {
		paths, readOnly, err = n.Manager.Mount(t.Context(), p)
		require.NoError(t, err)
	}
	dir := filepath.Join(n.root, "pods/uid-1/volumes/example.com~disks/data")
	require.Equal(t, map[string]string{"data": dir, "e": filepath.Join(n.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/e")}, paths)
	require.Equal(t, map[string]bool{"data": true}, readOnly)
	require.Equal(t, []string{"set up uid-1/data", "set up uid-1/data", "set up uid-1/data"}, d.take())

	// Each sync updates the volume, also in another agent.
	n.objects.secrets["s"].Data["user"] = []byte("new")
	again := n.restarted(t, d)
	require.NoError(t, again.Refresh(t.Context(), p))
	require.Equal(t, map[string]string{"user": "-rw------- new"}, in(t, dir))
	d.err = &volumes.OutdatedError{Err: errors.New("the disk is busy")}
	paths, err = again.Mount(t.Context(), p)
	require.NoError(t, err, "the existing volume must be usable")
	require.Equal(t, dir, paths["data"])
	require.EqualError(t, again.Refresh(t.Context(), p), `MountVolume.SetUp failed for volume "data" : the disk is busy`)
	d.take()

	// The volume is removed without its pod. Files and mounts that TearDown leaves are
	// removed, too.
	n.mounter.mounts = []volumes.MountPoint{{Target: dir + "/mounted"}}
	d.err = errors.New("in use")
	require.EqualError(t, again.Unmount(t.Context(), "uid-1"), `volumes: pod uid-1: plugin example.com/disks can't tear down volume "data": in use`)
	require.FileExists(t, dir+"/user", "the contents must not be removed")
	require.Len(t, n.mounter.targets(), 1)
	require.NoDirExists(t, paths["e"], "the failing volume must not prevent the removal of others")
	d.err = nil
	for range 2 {
		require.NoError(t, again.Unmount(t.Context(), "uid-1"))
	}
	require.Equal(t, []string{"tear down uid-1/data", "tear down uid-1/data"}, d.take())
	require.NoDirExists(t, n.root+"/pods/uid-1")
	require.Empty(t, n.mounter.targets())
}

// A volume at another path without a directory is neither updated nor removed.
func TestPlugin_WithoutFolder(t *testing.T) {
	t.Parallel()
	d := &disks{driver: "disks", noFolder: true}
	n := newNode(t, withPlugins(d))
	p := podOf(vol("data", csi("disks")))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"data": "/elsewhere"}, paths)
	require.NoError(t, n.Refresh(t.Context(), p))
	require.NoError(t, n.Unmount(t.Context(), p.UID))
	require.Equal(t, []string{"set up uid-1/data"}, d.take())
	uids, err := n.Pods()
	require.NoError(t, err)
	require.Empty(t, uids)
}

func TestPlugin_UnknownAfterARestart(t *testing.T) {
	t.Parallel()
	d := &disks{driver: "disks"}
	n := newNode(t, withPlugins(d))
	p := podOf(vol("data", csi("disks")), vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	foreign := volumes.MountPoint{Target: paths["data"] + "/mounted"}
	n.mounter.mounts = append(n.mounter.mounts, foreign)
	d.take()

	other := n.restarted(t)
	require.NoError(t, os.Mkdir(n.root+"/pods/uid-1/volumes/example.com~empty", 0o750))
	for range 2 {
		require.EqualError(t, other.Unmount(t.Context(), p.UID), fmt.Sprintf(
			`volumes: pod uid-1: plugin "example.com/disks" is unknown to this agent, so its volumes remain in %s`, filepath.Dir(paths["data"])))
		require.FileExists(t, paths["data"]+"/user")
		require.Equal(t, []volumes.MountPoint{foreign}, n.mounter.mounts, "a mount of an unknown plugin must be kept")
		require.NoDirExists(t, paths["s"], "the secret volume must be removed")
	}
	usage, err := other.Usage(t.Context(), p.UID)
	require.NoError(t, err)
	require.Empty(t, usage)
	uids, err := other.Pods()
	require.NoError(t, err)
	require.Equal(t, []types.UID{"uid-1"}, uids)

	require.NoError(t, n.restarted(t, d).Unmount(t.Context(), p.UID))
	require.Equal(t, []string{"tear down uid-1/data"}, d.take())
	require.NoDirExists(t, n.root+"/pods/uid-1")
}

// The removal does not follow links that have replaced directories.
func TestPlugin_LinkInPlaceOfItsFolder(t *testing.T) {
	t.Parallel()
	d := &disks{driver: "disks"}
	n := newNode(t, withPlugins(d))
	other := podOf(vol("data", csi("disks")))
	other.UID = "other"
	paths, err := n.Mount(t.Context(), other)
	require.NoError(t, err)
	d.take()
	for _, at := range []string{"uid-1/volumes/example.com~disks", "uid-1/volumes", "uid-1"} {
		at = filepath.Join(n.root, "pods", at)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o750))
		target := strings.Replace(at, "uid-1", "other", 1)
		rel, err := filepath.Rel(filepath.Dir(at), target)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(rel, at))
		require.NoError(t, n.Unmount(t.Context(), "uid-1"))
		require.Empty(t, d.take())
		require.FileExists(t, paths["data"]+"/user")
		require.NoFileExists(t, n.root+"/pods/uid-1")
	}
}

func TestPlugin_RefusalNamesEveryProblem(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *volumes.Config) { c.Plugins, c.Objects = []volumes.Plugin{&disks{driver: "disks"}}, nil })
	bad := csi("disks")
	bad.CSI.FSType = new("ntfs")
	p := podOf(vol("ok", emptyDir()), vol("other", csi("unknown")), vol("bad", bad), vol("claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}),
		vol("huge", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumHugePages}}), vol("cm", configMap("cm")),
		vol("p", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{DownwardAPI: &corev1.DownwardAPIProjection{}}, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}, {Secret: &corev1.SecretProjection{}},
		}}}),
		vol("image", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}), vol("ok", emptyDir()),
		vol("two", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}, CSI: bad.CSI}))
	p.Spec.Volumes = append(p.Spec.Volumes, vol("unused", csi("unknown")))
	require.EqualError(t, n.Unsupported(p), `spec.volumes[1].csi: volume "other": volume type csi is not supported
spec.volumes[2].csi: volume "bad": csi.fsType: ntfs is not supported
spec.volumes[3].persistentVolumeClaim: volume "claim": volume type persistentVolumeClaim is not supported
spec.volumes[4].emptyDir: volume "huge": emptyDir with medium HugePages is not supported
spec.volumes[5].configMap: volume "cm": configmap "cm": ConfigMaps are not available on this node
spec.volumes[6].projected: volume "p": projected.sources[1].serviceAccountToken: service account tokens are not available on this node
projected.sources[2].secret: secrets are not available on this node
spec.volumes[8].name: volume "ok": the pod has several volumes of this name
spec.volumes[9]: volume "two": may not specify more than 1 volume type: csi, emptyDir`)
	_, err := n.Mount(t.Context(), p)
	require.ErrorContains(t, err, `failed for volume "bad" : csi.fsType: ntfs is not supported`)
	uids, err := n.Pods()
	require.NoError(t, err)
	require.Empty(t, uids, "no plugin must be called")
}

// An edit that adds an unsupported volume does not affect the running pod.
func TestPlugin_EditThatAddsAnUnsupportedVolume(t *testing.T) {
	t.Parallel()
	d := &disks{driver: "disks"}
	n := newNode(t, withPlugins(d))
	paths, err := n.Mount(t.Context(), podOf(vol("data", csi("disks")), vol("cm", configMap("cm"))))
	require.NoError(t, err)
	d.take()
	edited := podOf(vol("data", csi("disks")), vol("cm", configMap("cm")), vol("new", csi("unknown")))
	_, err = n.Mount(t.Context(), edited)
	require.EqualError(t, err, `MountVolume.SetUp failed for volume "new" : volume type csi is not supported`)
	n.objects.set("cm", map[string]string{"a": "2"})
	require.EqualError(t, n.Refresh(t.Context(), edited), `MountVolume.SetUp failed for volume "new" : volume type csi is not supported`)
	require.Equal(t, map[string]string{"a": "-rw-r--r-- 2"}, in(t, paths["cm"]), "the other volumes must be updated")
	require.Equal(t, []string{"set up uid-1/data"}, d.take())
	require.FileExists(t, paths["data"]+"/user")
}

// everything supports all volumes.
type everything struct{ disks }

func (*everything) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) { return true, nil }

func TestPlugin_CustomPluginsAreTriedFirstAndInOrder(t *testing.T) {
	t.Parallel()
	first, all, last := &disks{driver: "first"}, &everything{disks{driver: "all", noFolder: true}}, &disks{driver: "last"}
	n := newNode(t, withPlugins(first, all, last))
	paths, err := n.Mount(t.Context(), podOf(vol("a", csi("first")), vol("b", csi("last")), vol("c", emptyDir()),
		vol("d", corev1.VolumeSource{}), vol("image", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}})))
	require.NoError(t, err)
	require.Len(t, paths, 4, "image volumes belong to the runtime")
	require.Equal(t, []string{"set up uid-1/a"}, first.take())
	require.Equal(t, []string{"set up uid-1/b", "set up uid-1/c", "set up uid-1/d"}, all.take())
	require.Empty(t, last.take())
}

type named struct {
	volumes.Plugin
	name string
}

func (n named) Name() string { return n.name }

func TestConfig_PluginNamesAreUnique(t *testing.T) {
	t.Parallel()
	c := volumes.Config{Root: "/x", Plugins: []volumes.Plugin{
		named{name: "a"}, nil, named{name: "b/c"}, named{name: "a"}, named{name: "b~c"}, named{}, named{name: ".."}, named{name: "kubernetes.io/secret"},
	}}
	want := `field Plugins[1] is nil
field Plugins[3]: plugin name "a" is used twice
field Plugins[4]: "b~c" is not a valid plugin name
field Plugins[5]: "" is not a valid plugin name
field Plugins[6]: ".." is not a valid plugin name
field Plugins[7]: plugin name "kubernetes.io/secret" is used twice`
	require.EqualError(t, c.Validate(), want)
	_, err := volumes.New(c)
	require.EqualError(t, err, "volumes: invalid config: "+want)
}

func TestPlugin_PathIsAbsolute(t *testing.T) {
	t.Parallel()
	n := newNode(t, withPlugins(relative{&disks{driver: "disks"}}))
	_, err := n.Mount(t.Context(), podOf(vol("data", csi("disks"))))
	require.EqualError(t, err, `MountVolume.SetUp failed for volume "data" : plugin example.com/disks returned path "", which is not absolute`)
}

type relative struct{ *disks }

func (relative) SetUp(context.Context, volumes.Request) (volumes.Mount, error) {
	return volumes.Mount{}, nil
}

func TestUsage(t *testing.T) {
	t.Parallel()
	d := &disks{driver: "disks", usage: &volumes.Usage{Used: 1, Capacity: 2}}
	broken := &disks{driver: "broken"}
	n := newNode(t, withPlugins(d, broken))
	_, err := n.Mount(t.Context(), podOf(vol("data", csi("disks")), vol("e", emptyDir()), vol("x", csi("broken"))))
	require.NoError(t, err)
	broken.err = errors.New("gone")
	usage, err := n.restarted(t, d, broken).Usage(t.Context(), "uid-1")
	require.EqualError(t, err, `volumes: pod uid-1: plugin example.com/broken can't measure volume "x": gone`)
	require.Equal(t, map[string]*volumes.Usage{"data": {Used: 1, Capacity: 2}, "e": nil}, usage)
	usage, err = n.Usage(t.Context(), "missing")
	require.NoError(t, err)
	require.Empty(t, usage)
	_, err = n.Usage(t.Context(), "../uid-1")
	require.Error(t, err)
}

// The mount table is read only if necessary, and once for all volumes.
func TestMount_MountTableIsReadAtMostOnce(t *testing.T) {
	t.Parallel()
	c := &counting{mounter: &mounter{}}
	n := newNode(t, func(cfg *volumes.Config) { cfg.Mounter = c })
	plain := podOf(vol("e", emptyDir()), vol("cm", configMap("cm")))
	secret := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}
	memory := podOf(vol("a", secret), vol("b", secret), vol("c", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}))
	memory.UID = "memory"
	reads := func(call func() error) int {
		before := c.reads
		require.NoError(t, call())
		return c.reads - before
	}
	mount := func(p *corev1.Pod) func() error {
		return func() error { _, err := n.Mount(t.Context(), p); return err }
	}
	require.Zero(t, reads(mount(plain)))
	require.Zero(t, reads(func() error { return n.Refresh(t.Context(), plain) }))
	require.Equal(t, 1, reads(mount(memory)))
	require.Equal(t, 1, reads(mount(memory)))
	require.Equal(t, 1, reads(func() error { return n.Unmount(t.Context(), plain.UID) }), "the mount table must be read before the removal, because nothing may be removed through a mount")
	require.Equal(t, 2, reads(func() error { return n.Unmount(t.Context(), memory.UID) }), "the mount table must be read again after unmounting")
	require.Zero(t, reads(func() error { return n.Unmount(t.Context(), memory.UID) }))
}

type counting struct {
	*mounter
	reads int
}

func (c *counting) Mounts() ([]volumes.MountPoint, error) {
	c.reads++
	return c.mounter.Mounts()
}
