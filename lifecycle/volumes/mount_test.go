package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

func TestPayloads(t *testing.T) {
	yes, mode, fourth := true, int32(0o400), int32(0o444)
	expiry := int64(600)
	key := func(key, path string) corev1.KeyToPath { return corev1.KeyToPath{Key: key, Path: path} }
	cm := func(change func(*corev1.ConfigMapVolumeSource)) corev1.VolumeSource {
		s := configMap("cm")
		change(s.ConfigMap)
		return s
	}
	secret := func(change func(*corev1.SecretVolumeSource)) corev1.VolumeSource {
		s := &corev1.SecretVolumeSource{SecretName: "s"}
		change(s)
		return corev1.VolumeSource{Secret: s}
	}
	field := func(path, field string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
	}
	amount := func(container, name, divisor string) corev1.DownwardAPIVolumeFile {
		ref := &corev1.ResourceFieldSelector{ContainerName: container, Resource: name}
		if divisor != "" {
			ref.Divisor = resource.MustParse(divisor)
		}
		return corev1.DownwardAPIVolumeFile{Path: "f", ResourceFieldRef: ref}
	}
	down := func(items ...corev1.DownwardAPIVolumeFile) corev1.VolumeSource {
		return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}
	}
	projected := func(sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
	}
	projectedMap := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}
	projectedSecret := corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Items: []corev1.KeyToPath{key("pass", "deep/er/pass")},
	}}
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "aud", Path: "token", ExpirationSeconds: &expiry}}
	for _, tc := range []struct {
		name   string
		source corev1.VolumeSource
		want   map[string]string
		err    string
	}{
		{name: "a whole ConfigMap", source: configMap("cm"), want: map[string]string{"a": "-rw-r--r-- 1", "b": "-rw-r--r-- 2", "bin": "-rw-r--r-- \x00\x01"}},
		{
			name: "items and modes",
			source: cm(func(s *corev1.ConfigMapVolumeSource) {
				s.DefaultMode = &mode
				s.Items = []corev1.KeyToPath{key("a", "x/y/z"), {Key: "b", Path: "b", Mode: &fourth}}
			}),
			want: map[string]string{"x/y/z": "-r-------- 1", "b": "-r--r--r-- 2"},
		},
		{name: "a missing key", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Items = []corev1.KeyToPath{key("c", "c")} }), err: "configmap references non-existent config key: c"},
		{
			name: "a missing optional key",
			source: cm(func(s *corev1.ConfigMapVolumeSource) {
				s.Optional = &yes
				s.Items = []corev1.KeyToPath{key("c", "c"), key("a", "a")}
			}),
			want: map[string]string{"a": "-rw-r--r-- 1"},
		},
		{name: "a missing ConfigMap", source: configMap("no"), err: `configmaps "no" not found`},
		{name: "a missing optional ConfigMap", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Name = "no"; s.Optional = &yes }), want: map[string]string{}},
		{name: "a path upwards", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Items = []corev1.KeyToPath{key("a", "../../x")} }), err: "invalid path: must not start with '..': ../../x"},
		{name: "a path that the volume itself uses", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Items = []corev1.KeyToPath{key("a", "..data")} }), err: "invalid path: must not start with '..': ..data"},
		{name: "an absolute path", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Items = []corev1.KeyToPath{key("a", "/etc/x")} }), err: "invalid path: must be relative path: /etc/x"},
		{name: "no path", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Items = []corev1.KeyToPath{key("a", "")} }), err: "invalid path: must not be empty"},
		{name: "a path that is both directory and file", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Items = []corev1.KeyToPath{key("a", "x"), key("b", "x/y")} }), err: `invalid path "x/y": "x" is a file`},
		{name: "a long name", source: cm(func(s *corev1.ConfigMapVolumeSource) {
			s.Items = []corev1.KeyToPath{key("a", strings.Repeat("n", 256))}
		}), err: "invalid path: filenames must be less than or equal to 255 characters"},
		{name: "a long path", source: cm(func(s *corev1.ConfigMapVolumeSource) {
			s.Items = []corev1.KeyToPath{key("a", strings.Repeat("n/", 2100))}
		}), err: "invalid path: must be less than or equal to 4096 characters"},
		{name: "a path with a zero byte", source: cm(func(s *corev1.ConfigMapVolumeSource) { s.Items = []corev1.KeyToPath{key("a", "a\x00b")} }), err: `invalid path: "a\x00b"`},

		{name: "a whole Secret", source: secret(func(*corev1.SecretVolumeSource) {}), want: map[string]string{"user": "-rw-r--r-- me", "pass": "-rw-r--r-- word"}},
		{name: "a missing key of a Secret", source: secret(func(s *corev1.SecretVolumeSource) { s.Items = []corev1.KeyToPath{key("c", "c")} }), err: "references non-existent secret key: c"},
		{name: "a missing Secret", source: secret(func(s *corev1.SecretVolumeSource) { s.SecretName = "no" }), err: `secrets "no" not found`},
		{name: "a missing optional Secret", source: secret(func(s *corev1.SecretVolumeSource) { s.SecretName = "no"; s.Optional = &yes }), want: map[string]string{}},

		{
			name: "fields",
			source: down(field("name", "metadata.name"), field("ns", "metadata.namespace"), field("uid", "metadata.uid"), field("labels", "metadata.labels"),
				field("notes", "metadata.annotations"), field("app", "metadata.labels['app']"), field("note", "metadata.annotations['note']"), field("no", "metadata.labels['no']")),
			want: map[string]string{
				"name": "-rw-r--r-- web", "ns": "-rw-r--r-- default", "uid": "-rw-r--r-- uid-1", "labels": "-rw-r--r-- app=\"web\"\ntier=\"a\\\"b\"",
				"notes": `-rw-r--r-- note="x\ny"`, "app": "-rw-r--r-- web", "note": "-rw-r--r-- x\ny", "no": "-rw-r--r-- ",
			},
		},
		{name: "a field that volumes don't show", source: down(field("f", "status.podIP")), err: `downwardAPI item "f": unsupported fieldPath: status.podIP`},
		{name: "neither field nor resource", source: down(corev1.DownwardAPIVolumeFile{Path: "f", Mode: &mode}), err: `downwardAPI item "f": neither fieldRef nor resourceFieldRef`},
		{name: "a limit, rounded up", source: down(amount("main", "limits.cpu", "")), want: map[string]string{"f": "-rw-r--r-- 2"}},
		{name: "a limit in thousandths", source: down(amount("main", "limits.cpu", "1m")), want: map[string]string{"f": "-rw-r--r-- 1500"}},
		{name: "memory in Mi", source: down(amount("main", "limits.memory", "1Mi")), want: map[string]string{"f": "-rw-r--r-- 64"}},
		{name: "a request", source: down(amount("main", "requests.memory", "1Ki")), want: map[string]string{"f": "-rw-r--r-- 0"}},
		{name: "a limit that defaults to the node's allocatable", source: down(amount("init", "limits.memory", "1Gi")), want: map[string]string{"f": "-rw-r--r-- 8"}},
		{name: "huge pages", source: down(amount("main", "limits.hugepages-2Mi", "1Mi")), want: map[string]string{"f": "-rw-r--r-- 0"}},
		{name: "a negative divisor", source: down(amount("main", "requests.cpu", "-1")), err: `downwardAPI item "f": divisor -1 is not positive`},
		{name: "a limit that neither container nor node has", source: down(amount("main", "limits.ephemeral-storage", "")), err: `downwardAPI item "f": container main has no limits.ephemeral-storage, and the node's allocatable ephemeral-storage is unknown`},
		{name: "no such container", source: down(amount("no", "limits.cpu", "")), err: `downwardAPI item "f": container no not found`},
		{name: "no such resource", source: down(amount("main", "limits.gpu", "")), err: `downwardAPI item "f": unsupported container resource : limits.gpu`},
		{name: "neither limit nor request", source: down(amount("main", "some.cpu", "")), err: `downwardAPI item "f": unsupported container resource : some.cpu`},

		{
			name: "all in one", source: projected(projectedMap, projectedSecret, token,
				corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "a", Mode: &mode, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}),
			want: map[string]string{
				"a": "-r-------- web", "b": "-rw-r--r-- 2", "bin": "-rw-r--r-- \x00\x01", "deep/er/pass": "-rw-r--r-- word", "token": "-rw-r--r-- [aud] 600",
			},
		},
		{name: "a source that we don't have", source: projected(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}), err: "projected.sources[0].clusterTrustBundle: this projected source is not supported"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(c *volumes.Config) {
				c.Allocatable = func() corev1.ResourceList {
					return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
				}
				c.Tokens = func(_ context.Context, pod *corev1.Pod, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
					require.Equal(t, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}, r.Spec.BoundObjectRef)
					token := fmt.Sprint(r.Spec.Audiences, *r.Spec.ExpirationSeconds)
					return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: token}}, nil
				}
			})
			p := podOf(vol("v", tc.source))
			p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
			paths, err := n.Mount(t.Context(), p)
			if tc.err != "" {
				require.EqualError(t, err, `MountVolume.SetUp failed for volume "v" : `+tc.err)
				require.Nil(t, paths)
				require.Empty(t, n.mounter.targets(), "no mount must be left")
				require.NoError(t, n.Unmount(t.Context(), p.UID))
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, in(t, paths["v"]))
		})
	}
}

func TestMount_MissingOnTheNode(t *testing.T) {
	token := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"},
	}}}}
	secret := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}
	broken := errors.New("broken")
	for _, tc := range []struct {
		name   string
		source corev1.VolumeSource
		change func(*volumes.Config)
		err    string
	}{
		{"no tokens", token, nil, "projected.sources[0].serviceAccountToken: service account tokens are not available on this node"},
		{"a token that is not given", token, func(c *volumes.Config) {
			c.Tokens = func(_ context.Context, _ *corev1.Pod, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
				if *r.Spec.ExpirationSeconds != 3600 || r.Spec.Audiences != nil {
					return r, nil
				}
				return nil, broken
			}
		}, "failed to fetch token: broken"},
		{"no ConfigMaps", configMap("cm"), func(c *volumes.Config) { c.Objects = nil }, `configmap "cm": ConfigMaps are not available on this node`},
		{"no Secrets", secret, func(c *volumes.Config) { c.Objects = nil }, `secret "s": secrets are not available on this node`},
		{"the lookup of the ConfigMap fails", configMap("cm"), func(c *volumes.Config) { c.Objects = &objects{err: broken} }, "broken"},
		{"the lookup of the Secret fails", secret, func(c *volumes.Config) { c.Objects = &objects{err: broken} }, "broken"},
		{"a tmpfs that can't be mounted", secret, func(c *volumes.Config) { c.Mounter = &mounter{tmpfsErr: broken} }, "broken"},
		{"mounts that can't be listed", secret, func(c *volumes.Config) { c.Mounter = &mounter{mountsErr: broken} }, "list mounts: broken"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tc.change)
			_, err := n.Mount(t.Context(), podOf(vol("v", tc.source)))
			require.EqualError(t, err, `MountVolume.SetUp failed for volume "v" : `+tc.err)
			var e *volumes.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "v", e.Volume)
			require.Contains(t, []string{"projected", "configMap", "secret"}, e.Type)
		})
	}
}

// Optional applies only to objects that are known not to exist.
func TestMount_OptionalObjectThatIsUnknown(t *testing.T) {
	t.Parallel()
	yes := true
	n := newNode(t, func(c *volumes.Config) { c.Objects = &objects{err: errors.New("not read yet")} })
	s := configMap("cm")
	s.ConfigMap.Optional = &yes
	_, err := n.Mount(t.Context(), podOf(vol("v", s)))
	require.ErrorContains(t, err, "not read yet")
}

func TestNotSupported(t *testing.T) {
	huge := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumHugePages}}
	two := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}, HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
	n := newNode(t, nil)
	p := podOf(vol("ok", emptyDir()), vol("claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}),
		vol("nfs", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), vol("huge", huge), vol("two", two), vol("..", emptyDir()),
		vol("a/b", emptyDir()), vol("ok", emptyDir()))
	_, err := n.Mount(t.Context(), p)
	require.EqualError(t, err, `MountVolume.SetUp failed for volume "claim" : volume type persistentVolumeClaim is not supported
MountVolume.SetUp failed for volume "nfs" : volume type nfs is not supported
MountVolume.SetUp failed for volume "huge" : emptyDir with medium HugePages is not supported
MountVolume.SetUp failed for volume "two" : may not specify more than 1 volume type: emptyDir, hostPath
MountVolume.SetUp failed for volume ".." : the name is not a valid volume name
MountVolume.SetUp failed for volume "a/b" : the name is not a valid volume name
MountVolume.SetUp failed for volume "ok" : the pod has several volumes of this name`)
	uids, err := n.Pods()
	require.NoError(t, err)
	require.Empty(t, uids, "no plugin must be called")
	require.Equal(t, "FailedMount", volumes.FailedMount)
}

func TestManager_InvalidUIDs(t *testing.T) {
	n := newNode(t, nil)
	for _, uid := range []string{"", ".", "..", "a/b", `a\b`, "../x", "a\x00", strings.Repeat("u", 256)} {
		p := podOf()
		p.UID = types.UID(uid)
		_, err := n.Mount(t.Context(), p)
		require.Error(t, err)
		require.Error(t, n.Refresh(t.Context(), p))
		require.Error(t, n.Unmount(t.Context(), p.UID))
	}
	_, err := n.Mount(t.Context(), nil)
	require.Error(t, err)
}

func TestMount_OnlyUsedVolumes(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("main", emptyDir()), vol("default", corev1.VolumeSource{}), vol("image", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}))
	p.Spec.Volumes = append(p.Spec.Volumes, vol("init", emptyDir()), vol("late", emptyDir()), vol("unused", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}))
	p.Spec.InitContainers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "init"}}}}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{VolumeMounts: []corev1.VolumeMount{{Name: "late"}}}}}
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	dir := filepath.Join(n.root, "pods/uid-1/volumes/kubernetes.io~empty-dir")
	require.Equal(t, map[string]string{
		"main": dir + "/main", "default": dir + "/default", "init": dir + "/init", "late": dir + "/late",
	}, paths)
	for _, path := range paths {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.ModeDir|0o777, info.Mode(), "the mode must not depend on the umask")
	}
}

func TestMemory(t *testing.T) {
	limit := func(s string) *resource.Quantity { q := resource.MustParse(s); return &q }
	for _, tc := range []struct {
		name      string
		own       *resource.Quantity
		node      string
		pod, main string
		init      string
		want      int64
	}{
		{name: "no limit"},
		{name: "the volume's limit", own: limit("1Mi"), want: 1 << 20},
		{name: "the node", node: "4Mi", want: 4 << 20},
		{name: "the containers' limits", node: "4Mi", main: "2Mi", want: 2 << 20},
		{name: "the limits of the containers and init containers", node: "4Mi", main: "2Mi", init: "1Mi", want: 3 << 20},
		{name: "an init container has no limit", node: "4Mi", main: "2Mi", init: "0", want: 4 << 20},
		{name: "the pod", node: "4Mi", main: "2Mi", pod: "3Mi", want: 3 << 20},
		{name: "the volume's limit is above the containers' limits", own: limit("8Mi"), node: "4Mi", main: "2Mi", want: 2 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			list := func(s string) corev1.ResourceList {
				if s == "" {
					return nil
				}
				return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(s)}
			}
			n := newNode(t, func(c *volumes.Config) { c.Allocatable = func() corev1.ResourceList { return list(tc.node) } })
			p := podOf(vol("v", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: tc.own}}))
			p.Spec.Containers[0].Resources.Limits = list(tc.main)
			if tc.init != "" {
				p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: list(tc.init)}}}
			}
			if tc.pod != "" {
				p.Spec.Resources = &corev1.ResourceRequirements{Limits: list(tc.pod)}
			}
			for range 2 { // in the second call it already exists
				paths, err := n.Mount(t.Context(), p)
				require.NoError(t, err)
				require.Equal(t, []string{paths["v"]}, n.mounter.targets())
				require.Equal(t, tc.want, n.mounter.sizes[paths["v"]])
			}
		})
	}
}

func TestMount_SecretsAreOnTmpfs(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}), vol("cm", configMap("cm")),
		vol("d", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}), vol("p", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, []string{paths["s"], paths["d"], paths["p"]}, n.mounter.targets())
	dir := filepath.Join(n.root, "pods/uid-1/volumes/kubernetes.io~")
	require.Equal(t, map[string]string{"s": dir + "secret/s", "cm": dir + "configmap/cm", "d": dir + "downward-api/d", "p": dir + "projected/p"}, paths)
}

func TestConfig_RootIsRequiredAndAbsolute(t *testing.T) {
	_, err := volumes.New(volumes.Config{})
	require.EqualError(t, err, "volumes: invalid config: field Root is required")
	_, err = volumes.New(volumes.Config{Root: "here"})
	require.EqualError(t, err, `volumes: invalid config: field Root: "here" is not absolute`)
	l, err := volumes.New(volumes.Config{Root: filepath.Join(t.TempDir(), "none")})
	require.NoError(t, err)
	uids, err := l.Pods()
	require.NoError(t, err)
	require.Empty(t, uids)
	require.NoError(t, l.Unmount(t.Context(), "uid-1"), "unmounting a pod without volumes must succeed")
}

// A failed volume leaves no directory, so that a pod that never starts needs no
// cleanup.
func TestMount_RejectedVolumesLeaveNothing(t *testing.T) {
	n := newNode(t, nil)
	items := configMap("cm")
	items.ConfigMap.Items = []corev1.KeyToPath{{Key: "a", Path: "../out"}}
	for _, source := range []corev1.VolumeSource{
		configMap("no"), items,
		{Secret: &corev1.SecretVolumeSource{SecretName: "no"}},
		{HostPath: &corev1.HostPathVolumeSource{Path: "../x"}},
	} {
		_, err := n.Mount(t.Context(), podOf(vol("v", source)))
		require.Error(t, err)
		uids, err := n.Pods()
		require.NoError(t, err)
		require.Empty(t, uids)
	}
	require.Empty(t, n.mounter.targets())
}

// A crashed container starts again even if the objects of its volumes were deleted.
func TestMount_ReadyVolumesStayReady(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("cm", configMap("cm")), vol("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	before := in(t, paths["cm"])
	delete(n.objects.configMaps, "cm")
	n.objects.secrets["s"].Data = map[string][]byte{"..": []byte("no name of a file")}
	for _, l := range []*node{n, newNode(t, func(c *volumes.Config) {
		c.Root, c.Mounter, c.Objects = n.root, n.mounter, n.objects // the agent was restarted
	})} {
		again, err := l.Mount(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, paths, again)
		require.Equal(t, before, in(t, paths["cm"]))
		err = l.Refresh(t.Context(), p)
		require.ErrorContains(t, err, `volume "cm" : configmaps "cm" not found`)
		require.ErrorContains(t, err, `volume "s" : invalid path`)
	}
	// The pod fails if a volume was never set up.
	p.Spec.Volumes = append(p.Spec.Volumes, vol("new", configMap("cm")))
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "new"})
	_, err = n.Mount(t.Context(), p)
	require.EqualError(t, err, `MountVolume.SetUp failed for volume "new" : configmaps "cm" not found`)
}

// A manifest that refers to one key or field many times needs more memory than its own
// length.
func TestMount_FilesOfAPodAreBounded(t *testing.T) {
	t.Parallel()
	const each, most = 1 << 20, volumes.MaxPodBytes >> 20
	down := func(times int) corev1.VolumeSource {
		s := &corev1.DownwardAPIVolumeSource{}
		for i := range times {
			s.Items = append(s.Items, corev1.DownwardAPIVolumeFile{
				Path: strconv.Itoa(i), FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['note']"},
			})
		}
		return corev1.VolumeSource{DownwardAPI: s}
	}
	keys := func(key string, times int) corev1.VolumeSource {
		s := configMap("cm")
		for i := range times {
			s.ConfigMap.Items = append(s.ConfigMap.Items, corev1.KeyToPath{Key: key, Path: strconv.Itoa(i)})
		}
		return s
	}
	projected := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}
	for i := range most + 1 {
		projected.Projected.Sources = append(projected.Projected.Sources, corev1.VolumeProjection{
			Secret: &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Items: []corev1.KeyToPath{{Key: "big", Path: strconv.Itoa(i)}},
			},
		})
	}
	for name, all := range map[string][]corev1.Volume{
		"a field":             {vol("last", down(most+1))},
		"a key":               {vol("last", keys("big", most+1))},
		"a key of sources":    {vol("last", projected)},
		"empty files":         {vol("last", keys("empty", most*256+1))},
		"volumes of one pod":  {vol("v", keys("big", 3)), vol("last", down(most-2))},
		"the same path again": {vol("last", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: slices.Repeat(down(1).DownwardAPI.Items, most+1)}})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nil)
			n.objects.set("cm", map[string]string{"big": strings.Repeat("x", each), "empty": ""})
			n.objects.secrets["s"].Data["big"] = make([]byte, each)
			pod := podOf(all...)
			pod.Annotations["note"] = strings.Repeat("x", each)
			_, err := n.Mount(t.Context(), pod)
			require.ErrorContains(t, err, `volume "last"`)
			require.ErrorContains(t, err, "the files in the pod's volumes have more than 64 MiB in total")
			require.Empty(t, n.mounter.targets(), "no volume must be created")

			pod.Spec.Volumes = all[:len(all)-1]
			_, err = n.Mount(t.Context(), pod)
			require.NoError(t, err, "the limit must apply per call")
			require.NoError(t, n.Refresh(t.Context(), pod))
		})
	}
}
