package fakecri_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

func spec(name string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: name} }

func (b *bed) image(name string) *runtimeapi.Image {
	b.t.Helper()
	resp, err := b.ImageStatus(b.t.Context(), spec(name), false)
	require.NoError(b.t, err)
	return resp.GetImage()
}

func TestImages_AreFoundByEveryReference(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for name, full := range map[string]string{
		"busybox":                       "docker.io/library/busybox:latest",
		"busybox:1":                     "docker.io/library/busybox:1",
		"demo/web:1":                    "docker.io/demo/web:1",
		"docker.io/demo/web:1":          "docker.io/demo/web:1",
		"localhost/web":                 "localhost/web:latest",
		"localhost:5000/a/b/c:V1.0_x-y": "localhost:5000/a/b/c:V1.0_x-y",
		"registry.k8s.io/pause:3.10":    "registry.k8s.io/pause:3.10",
		"a/b_c__d.e---f":                "docker.io/a/b_c__d.e---f:latest",
		"busybox@" + digest:             "docker.io/library/busybox@" + digest,
		"busybox:1@" + digest:           "docker.io/library/busybox@" + digest,
		"host:1/busybox:1@" + digest:    "host:1/busybox@" + digest,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(c *fakecri.Config) { c.Images, c.PullAny = nil, true })
			id, err := b.PullImage(t.Context(), spec(name), nil, nil)
			require.NoError(t, err)
			img := b.image(name)
			require.Equal(t, id, img.GetId())
			require.Contains(t, append(img.GetRepoTags(), img.GetRepoDigests()...), full)
			for _, other := range append([]string{full, id, strings.TrimPrefix(id, "sha256:")}, img.GetRepoDigests()...) {
				require.Equal(t, id, b.image(other).GetId(), other)
			}
		})
	}
}

func TestParseRef_Invalid(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) { c.PullAny = true })
	for _, name := range []string{
		"", " ", ":", "@", "/", "a/", "/a", "a//b", "A", "demo/Web", "a b", "a:", "a:-x", "a:.x", "a:x y",
		"a:" + strings.Repeat("x", 129), "a@sha256:12", "a@md5:" + strings.Repeat("a", 64),
		"a@sha256:" + strings.Repeat("G", 64), "-a", "a-", "a..b", "a___b", "a._b", "host:port/a", "ho st/a.b", "h:1:2/a", "ä",
	} {
		_, err := b.PullImage(t.Context(), spec(name), nil, nil)
		requireCode(t, codes.Unknown, err, "failed to parse image reference")
		require.Nil(t, b.image(name))
	}
	_, err := b.PullImage(t.Context(), nil, nil, nil)
	requireCode(t, codes.Unknown, err)
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:c", "h:1/a@sha256:" + strings.Repeat("0", 64), "::", "a..b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n, err := fakecri.New(fakecri.Config{PullAny: true})
		require.NoError(t, err)
		id, err := n.PullImage(t.Context(), spec(name), nil, nil)
		if err != nil {
			return
		}
		// ImageStatus finds an image that was pulled. The image's full names
		// identify the same image.
		resp, err := n.ImageStatus(t.Context(), spec(name), false)
		require.NoError(t, err)
		require.Equal(t, id, resp.GetImage().GetId())
		for _, full := range append(resp.GetImage().GetRepoTags(), resp.GetImage().GetRepoDigests()...) {
			again, err := n.PullImage(t.Context(), spec(full), nil, nil)
			require.NoError(t, err)
			require.Equal(t, id, again)
		}
	})
}

func TestPullImage_FromTheRegistry(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.Images = []fakecri.Image{{Name: "here:1", SizeBytes: 10}}
		c.Registry = []fakecri.Image{{Name: "far:1", Tags: []string{"far:latest", "mirror.test/far:1"}, SizeBytes: 20, User: "1002:5", Pinned: true}}
	})
	require.Nil(t, b.image("far:1"))
	_, err := b.PullImage(t.Context(), spec("nowhere:1"), nil, nil)
	requireCode(t, codes.NotFound, err, `failed to pull and unpack image "docker.io/library/nowhere:1"`)

	id, err := b.PullImage(t.Context(), spec("far"), nil, nil)
	require.NoError(t, err)
	img := b.image("far:latest")
	require.Equal(t, id, img.GetId())
	require.Equal(t, []string{"docker.io/library/far:latest"}, img.GetRepoTags()) // the image has only the tags that were pulled
	require.EqualValues(t, 20, img.GetSize())
	require.EqualValues(t, 1002, img.GetUid().GetValue())
	require.Empty(t, img.GetUsername())
	require.True(t, img.GetPinned())
	require.Nil(t, b.image("far:1"))

	for _, name := range []string{"far:1", "far:1", "mirror.test/far:1", img.GetRepoDigests()[0]} {
		again, err := b.PullImage(t.Context(), spec(name), nil, nil)
		require.NoError(t, err)
		require.Equal(t, id, again)
	}
	img = b.image(id)
	require.Equal(t, []string{"docker.io/library/far:latest", "docker.io/library/far:1", "mirror.test/far:1"}, img.GetRepoTags())
	require.Len(t, img.GetRepoDigests(), 2) // one digest for each repository

	list, err := b.ListImages(t.Context(), &runtimeapi.ImageFilter{Image: spec("ignored")})
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"docker.io/library/here:1"}, list[0].GetRepoTags())
}

func TestRemoveImage_RemovesAllReferences(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.Images = []fakecri.Image{{Name: "a:1", Tags: []string{"a:2"}, User: "nobody:users"}}
	})
	img := b.image("a:1")
	require.Equal(t, "nobody", img.GetUsername())
	require.Nil(t, img.GetUid())
	for range 2 {
		require.NoError(t, b.RemoveImage(t.Context(), spec("a:2")))
		for _, name := range append(append(img.GetRepoTags(), img.GetRepoDigests()...), img.GetId()) {
			require.Nil(t, b.image(name))
		}
	}
	list, err := b.ListImages(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, list)
	id, err := b.PullImage(t.Context(), spec("a:2"), nil, nil)
	require.NoError(t, err)
	require.Equal(t, img.GetId(), id)
}

func TestPullImage_MovesATag(t *testing.T) {
	// In the registry, the tag belongs to another image than in the node's
	// store.
	b := newBed(t, func(c *fakecri.Config) {
		c.Images = []fakecri.Image{{Name: "app:1", Tags: []string{"app:latest"}}}
		c.Registry = []fakecri.Image{{Name: "app:2", Tags: []string{"app:latest"}}}
	})
	old := b.image("app:latest")
	id, err := b.PullImage(t.Context(), spec("app:latest"), nil, nil)
	require.NoError(t, err)
	require.NotEqual(t, old.GetId(), id)
	require.Equal(t, id, b.image("app").GetId())
	require.Equal(t, []string{"docker.io/library/app:1"}, b.image(old.GetId()).GetRepoTags())
}

func TestImages_MessagesAreCopies(t *testing.T) {
	b := newBed(t)
	b.image("demo/web:1").RepoTags[0] = "changed"
	require.Equal(t, []string{"docker.io/demo/web:1"}, b.image("demo/web:1").GetRepoTags())
}

func TestImageFsInfo(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.Images = []fakecri.Image{{Name: "a", SizeBytes: 3 << 20}, {Name: "b", SizeBytes: 1 << 20}}
	})
	info, err := b.ImageFsInfo(t.Context())
	require.NoError(t, err)
	fs := info.GetImageFilesystems()[0]
	require.EqualValues(t, 4<<20, fs.GetUsedBytes().GetValue())
	require.EqualValues(t, 256, fs.GetInodesUsed().GetValue())
	require.Equal(t, epoch.UnixNano(), fs.GetTimestamp())
	require.Empty(t, info.GetContainerFilesystems(), "as in containerd")
	require.NoError(t, b.RemoveImage(t.Context(), spec("a")))
	info, err = b.ImageFsInfo(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, info.GetImageFilesystems()[0].GetUsedBytes().GetValue())
}

func TestPrograms_AreFoundByAnyImageName(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.Images = append(c.Images[1:], fakecri.Image{Name: "x:1", Tags: []string{"demo/broken:1"}})
	})
	id := b.image("x:1").GetId()
	sandbox := b.pod("a")
	for i, image := range []*runtimeapi.ImageSpec{
		spec("x:1"), spec("docker.io/demo/broken:1"), spec(id), {Image: id, UserSpecifiedImage: "x:1"},
	} {
		config := containerConfig("app", "", uint32(i))
		config.Image = image
		c, err := b.CreateContainer(t.Context(), sandbox, config, podConfig("a", 0))
		require.NoError(t, err)
		requireCode(t, codes.Unknown, b.StartContainer(t.Context(), c), "no such file")
	}
	// The image name that the user specified has precedence over the image's
	// other names.
	config := containerConfig("other", "", 0)
	config.Image = &runtimeapi.ImageSpec{Image: id, UserSpecifiedImage: "demo/web:1"}
	c, err := b.CreateContainer(t.Context(), sandbox, config, podConfig("a", 0))
	require.NoError(t, err)
	require.NoError(t, b.StartContainer(t.Context(), c))
}
