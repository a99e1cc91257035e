//go:build unix

package volumes_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// someGroup returns a group that this process may give files to: any group for
// root.
func someGroup() int64 {
	if os.Getuid() == 0 {
		return 4242
	}
	return int64(os.Getgid())
}

func mode(t *testing.T, path string) (fs.FileMode, int64) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode(), int64(info.Sys().(*syscall.Stat_t).Gid)
}

func TestFSGroup(t *testing.T) {
	n := newNode(t, nil)
	group, secretMode := someGroup(), int32(0o400)
	p := podOf(vol("e", emptyDir()), vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "s", DefaultMode: &secretMode, Items: []corev1.KeyToPath{{Key: "pass", Path: "deep/pass"}},
	}}))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	for path, want := range map[string]fs.FileMode{
		paths["e"]:                     fs.ModeDir | fs.ModeSetgid | 0o777,
		paths["s"]:                     fs.ModeDir | fs.ModeSetgid | fs.ModeSticky | 0o777,
		paths["s"] + "/deep/pass":      0o440,
		paths["s"] + "/..data/deep":    fs.ModeDir | fs.ModeSetgid | 0o755,
		paths["s"] + "/..data/../deep": fs.ModeDir | fs.ModeSetgid | 0o755,
	} {
		got, gid := mode(t, path)
		require.Equal(t, want, got, path)
		require.Equal(t, group, gid, path)
	}

	// After a change of the group, the volume gets a new version of its contents.
	before, err := os.Readlink(paths["s"] + "/..data")
	require.NoError(t, err)
	require.NoError(t, n.Refresh(t.Context(), p))
	same, err := os.Readlink(paths["s"] + "/..data")
	require.NoError(t, err)
	require.Equal(t, before, same)
	p.Spec.SecurityContext = nil
	n.clock.Step(time.Second)
	require.NoError(t, n.Refresh(t.Context(), p))
	got, _ := mode(t, paths["s"]+"/deep/pass")
	require.Equal(t, fs.FileMode(0o400), got)

	// Modes that a container has set on its directory are kept, because databases require
	// 0700.
	for _, own := range []fs.FileMode{0o755, 0o700} {
		require.NoError(t, os.Chmod(paths["e"], own))
		_, err = n.Mount(t.Context(), p)
		require.NoError(t, err)
		got, _ = mode(t, paths["e"])
		require.Equal(t, fs.ModeDir|own, got)
	}
}

// A token is readable only by the containers' user if all containers have the same known
// user, and also by the group if there is an fsGroup.
func TestTokenOwner(t *testing.T) {
	me, other := int64(os.Getuid()), int64(os.Getuid()+1)
	user := func(uid *int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: uid} }
	for _, tc := range []struct {
		name        string
		pod         *corev1.PodSecurityContext
		first, init *corev1.SecurityContext
		want        fs.FileMode
	}{
		{"no user is set", nil, nil, nil, 0o644},
		{"the pod sets the user", &corev1.PodSecurityContext{RunAsUser: &me}, nil, nil, 0o600},
		{"both containers set the same user", nil, user(&me), user(&me), 0o600},
		{"one container sets no user", nil, user(&me), nil, 0o644},
		{"the containers set different users", &corev1.PodSecurityContext{RunAsUser: &me}, nil, user(&other), 0o644},
		{"a group", &corev1.PodSecurityContext{FSGroup: new(someGroup())}, nil, nil, 0o640},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(c *volumes.Config) {
				c.Tokens = func(_ context.Context, _ *corev1.Pod, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
					r.Status.Token = "token"
					return r, nil
				}
			})
			p := podOf(vol("v", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"},
			}}}}))
			p.Spec.SecurityContext = tc.pod
			p.Spec.Containers[0].SecurityContext = tc.first
			p.Spec.InitContainers = []corev1.Container{{SecurityContext: tc.init}}
			paths, err := n.Mount(t.Context(), p)
			require.NoError(t, err)
			got, _ := mode(t, paths["v"]+"/token")
			require.Equal(t, tc.want, got)
			before, err := filepath.EvalSymlinks(paths["v"] + "/..data")
			require.NoError(t, err)
			n.clock.Step(time.Second)
			require.NoError(t, n.Refresh(t.Context(), p))
			after, err := filepath.EvalSymlinks(paths["v"] + "/..data")
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestSetFSGroup(t *testing.T) {
	t.Parallel()
	group := someGroup()
	dir, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/deep", 0o700))
	require.NoError(t, os.WriteFile(dir+"/deep/file", nil, 0o600))
	require.NoError(t, os.WriteFile(outside+"/file", nil, 0o600))
	require.NoError(t, os.Symlink(outside+"/file", dir+"/link"))
	require.NoError(t, os.Chmod(dir, 0o700))
	p := podOf()
	m := volumes.Mount{Path: dir, ReadOnly: true}
	require.NoError(t, volumes.SetFSGroup(p, m))
	top, _ := mode(t, dir)
	require.Equal(t, fs.ModeDir|0o700, top, "without a group, the mode must be 0700")

	policy := corev1.FSGroupChangeOnRootMismatch
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: &policy}
	check := func(folder, file fs.FileMode) {
		t.Helper()
		require.NoError(t, volumes.SetFSGroup(p, m))
		for path, want := range map[string]fs.FileMode{dir: folder, dir + "/deep": folder, dir + "/deep/file": file} {
			got, gid := mode(t, path)
			require.Equal(t, want, got, path)
			require.Equal(t, group, gid, path)
		}
	}
	check(fs.ModeDir|fs.ModeSetgid|0o750, 0o640)
	m.ReadOnly = false
	check(fs.ModeDir|fs.ModeSetgid|0o770, 0o660)
	kept, _ := mode(t, outside+"/file")
	require.Equal(t, fs.FileMode(0o600), kept, "the target of a link must not change")

	require.NoError(t, os.Chmod(dir+"/deep/file", 0o600))
	require.NoError(t, volumes.SetFSGroup(p, m))
	kept, _ = mode(t, dir+"/deep/file")
	require.Equal(t, fs.FileMode(0o600), kept, "nothing must change if the top directory is correct")
	p.Spec.SecurityContext.FSGroupChangePolicy = nil
	check(fs.ModeDir|fs.ModeSetgid|0o770, 0o660)
	m.Path += "/missing"
	require.Error(t, volumes.SetFSGroup(p, m))
}
