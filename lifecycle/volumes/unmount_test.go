package volumes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

func TestUnmount(t *testing.T) {
	n := newNode(t, nil)
	host := t.TempDir()
	require.NoError(t, os.WriteFile(host+"/keep", nil, 0o600))
	p := podOf(vol("e", emptyDir()), vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		vol("h", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, host, paths["h"])
	require.NoError(t, os.WriteFile(paths["e"]+"/written", nil, 0o600))
	_, err = n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.FileExists(t, paths["e"]+"/written", "a second Mount must keep the files")

	// The runtime has left its own mounts there, one on top of the other. The mounts of
	// another pod must be kept.
	other := filepath.Join(n.root, "pods/uid-11/volumes/x")
	for _, target := range []string{paths["e"] + "/bind", paths["e"] + "/bind/deep", paths["e"] + "/bind", other, "/"} {
		n.mounter.mounts = append(n.mounter.mounts, volumes.MountPoint{Target: target})
	}
	var order []string
	n.mounter.onUnmount = func(target string) { order = append(order, target) }
	uids, err := n.Pods()
	require.NoError(t, err)
	require.Equal(t, []types.UID{"uid-1"}, uids)
	for range 2 {
		require.NoError(t, n.Unmount(t.Context(), "uid-1"))
	}
	require.Equal(t, []string{paths["e"] + "/bind", paths["e"] + "/bind/deep", paths["e"] + "/bind", paths["s"]}, order, "mounts must be unmounted in reverse order")
	require.Equal(t, []string{other, "/"}, n.mounter.targets())
	require.FileExists(t, host+"/keep")
	require.NoDirExists(t, n.root+"/pods/uid-1")
	uids, err = n.Pods()
	require.NoError(t, err)
	require.Empty(t, uids)
}

// A removal through a mount would delete data that does not belong to the pod.
func TestUnmount_RemovesNothingWhileSomethingIsMounted(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		spoil func(n *node, target string)
		err   string
	}{
		"a mount that does not go":     {func(n *node, target string) { n.mounter.stuck = target }, "device or resource busy"},
		"mounts that can't be listed":  {func(n *node, _ string) { n.mounter.mountsErr = broken }, "list mounts: broken"},
		"a mount that appears in time": {func(n *node, target string) { n.mounter.onUnmount = n.again(target) }, "still mounted after unmounting: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nil)
			paths, err := n.Mount(t.Context(), podOf(vol("e", emptyDir())))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(paths["e"]+"/data", nil, 0o600))
			n.mounter.mounts = []volumes.MountPoint{{Target: paths["e"]}}
			tc.spoil(n, paths["e"])
			require.ErrorContains(t, n.Unmount(t.Context(), "uid-1"), tc.err)
			require.FileExists(t, paths["e"]+"/data")
			n.mounter.stuck, n.mounter.mountsErr, n.mounter.onUnmount = "", nil, nil
			require.NoError(t, n.Unmount(t.Context(), "uid-1"))
			require.NoDirExists(t, paths["e"])
		})
	}
}

// again mounts a target again when it is unmounted.
func (n *node) again(target string) func(string) {
	return func(string) {
		n.mounter.mounts = append(n.mounter.mounts, volumes.MountPoint{Target: target + "/again"})
	}
}

func TestCancelled(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
	_, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = n.Mount(ctx, p)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, n.Unmount(ctx, p.UID), context.Canceled)
	require.NoError(t, n.Unmount(t.Context(), p.UID))
}

// The cleanup does not follow links that a container has created in its volume.
func TestUnmount_LinksInVolumes(t *testing.T) {
	n := newNode(t, nil)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(outside+"/keep", nil, 0o600))
	paths, err := n.Mount(t.Context(), podOf(vol("e", emptyDir())))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(outside, paths["e"]+"/out"))
	require.NoError(t, os.Symlink("../../../../../..", paths["e"]+"/up"))
	require.NoError(t, os.Symlink("loop", paths["e"]+"/loop"))
	require.NoError(t, n.Unmount(t.Context(), "uid-1"))
	require.FileExists(t, outside+"/keep")

	// It does not follow links that have replaced a pod's directory or a part of a volume's
	// path either.
	require.NoError(t, os.Symlink(outside, n.root+"/pods/uid-1"))
	_, err = n.Mount(t.Context(), podOf(vol("e", emptyDir())))
	require.Error(t, err)
	require.NoError(t, n.Unmount(t.Context(), "uid-1"))
	require.FileExists(t, outside+"/keep")
	secret := vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})
	require.NoError(t, os.MkdirAll(n.root+"/pods/uid-1/volumes/elsewhere", 0o700))
	require.NoError(t, os.Symlink("elsewhere", n.root+"/pods/uid-1/volumes/kubernetes.io~secret"))
	_, err = n.Mount(t.Context(), podOf(secret))
	require.ErrorContains(t, err, "its path contains a symbolic link")
	require.Empty(t, n.mounter.targets())
}

// The kernel lists mounts by their resolved paths, for any path of the root.
func TestUnmount_RootIsALink(t *testing.T) {
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(real, link))
	n := newNode(t, func(c *volumes.Config) { c.Root = link })
	p := podOf(vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(link, "pods/uid-1/volumes/kubernetes.io~secret/s"), paths["s"])
	require.Equal(t, []string{filepath.Join(real, "pods/uid-1/volumes/kubernetes.io~secret/s")}, n.mounter.targets())
	_, err = n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, n.mounter.targets(), 1)
	require.NoError(t, n.Unmount(t.Context(), p.UID))
	require.Empty(t, n.mounter.targets())
}

func TestManager_ConcurrentUse(t *testing.T) {
	n := newNode(t, nil)
	var all sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 100 {
		p := podOf(vol("v", configMap("cm")), vol("e", emptyDir()))
		p.UID = types.UID([]string{"a", "b", "c"}[i%3])
		all.Go(func() {
			switch i % 4 {
			case 0:
				errs <- n.Unmount(t.Context(), p.UID)
			case 1:
				errs <- n.Refresh(t.Context(), p)
			default:
				_, err := n.Mount(t.Context(), p)
				errs <- err
			}
		})
	}
	all.Wait()
	for range 100 {
		require.NoError(t, <-errs)
	}
}

func TestManager_RootIsNotADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	n := newNode(t, func(c *volumes.Config) { c.Root = file })
	_, err := n.Mount(t.Context(), podOf())
	require.Error(t, err)
	require.Error(t, n.Refresh(t.Context(), podOf(vol("c", configMap("cm")))))
	require.NoError(t, n.Refresh(t.Context(), podOf(vol("e", emptyDir()))), "Refresh of an emptyDir must succeed")
	require.Error(t, n.Unmount(t.Context(), "uid-1"))
	_, err = n.Pods()
	require.Error(t, err)
}

// A reboot removes tmpfs contents and keeps the directories. The next call mounts again, and
// until then nothing of a Secret is written to the directory, which is now on disk.
func TestMount_AfterAReboot(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}), vol("e", emptyDir()))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(paths["e"]+"/data", nil, 0o600))
	n.mounter.mounts = nil
	require.NoError(t, os.RemoveAll(paths["s"]))
	require.NoError(t, os.Mkdir(paths["s"], 0o777))

	n.mounter.tmpfsErr = errors.New("no memory")
	require.ErrorContains(t, n.Refresh(t.Context(), p), "no memory")
	left, err := os.ReadDir(paths["s"])
	require.NoError(t, err)
	require.Empty(t, left)
	n.mounter.tmpfsErr = nil
	require.NoError(t, n.Refresh(t.Context(), p))
	require.Equal(t, []string{paths["s"]}, n.mounter.targets())
	_, err = n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, []string{paths["s"]}, n.mounter.targets())
	require.Equal(t, map[string]string{"user": "-rw-r--r-- me", "pass": "-rw-r--r-- word"}, in(t, paths["s"]))
	require.FileExists(t, paths["e"]+"/data")
}

// The Managers of two consecutive agents know the same pods.
func TestPods_AfterARestart(t *testing.T) {
	first := newNode(t, nil)
	for _, uid := range []types.UID{"b", "a"} {
		p := podOf(vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
		p.UID = uid
		_, err := first.Mount(t.Context(), p)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(first.root+"/pods/file", nil, 0o600))
	second := newNode(t, func(c *volumes.Config) { c.Root, c.Mounter = first.root, first.mounter })
	uids, err := second.Pods()
	require.NoError(t, err)
	require.Equal(t, []types.UID{"a", "b"}, uids)
	for _, uid := range uids {
		require.NoError(t, second.Unmount(t.Context(), uid))
	}
	require.Empty(t, first.mounter.targets())
	uids, err = second.Pods()
	require.NoError(t, err)
	require.Empty(t, uids)
}
