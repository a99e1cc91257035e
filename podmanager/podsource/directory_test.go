package podsource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

func TestDirectoryConfig_ValidateReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := podsource.NewDirectory(podsource.DirectoryConfig{Period: -1})
	require.ErrorContains(t, err, "podsource: invalid config")
	require.ErrorContains(t, err, "field Path is required")
	require.ErrorContains(t, err, "field NodeName is required")
	require.ErrorContains(t, err, "field Period")
	require.ErrorContains(t, podsource.DirectoryConfig{Path: "x", NodeName: "a_b"}.Validate(), `field NodeName: "a_b"`)
	require.NoError(t, podsource.DirectoryConfig{Path: "x", NodeName: "NODE.example"}.Validate())
}

func TestDirectory_OrdersPodsByFileAndDocument(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("b.yml", yamlOf("b", "i:1"))
	b.write("a.yaml", "---\n# nothing here\n---\n"+yamlOf("z", "i:1")+"---\n"+yamlOf("x", "i:1")+"...\n")
	b.write("c.JSON", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`)
	b.requirePods("z-node1 i:1", "x-node1 i:1", "b-node1 i:1", "c-node1 i:1")
	b.requireTold()
}

func TestDirectory_IgnoresOtherNames(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, name := range []string{".web.yaml", ".web.yaml.swp", "web.yaml~", "#web.yaml#", "web.yaml.bak", "README.md", "4913", "yaml"} {
		b.write(name, "not a manifest")
	}
	require.NoError(t, os.MkdirAll(filepath.Join(b.path, "sub.yaml"), 0o700))
	require.NoError(t, os.Symlink("sub.yaml", filepath.Join(b.path, "link.yaml")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(b.path, ".#web.yaml")))
	res := b.requirePods()
	require.Zero(t, res.FilesRead)
	b.requireTold()
}

func TestDirectory_ReadsNothingIfUnchanged(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("good.yaml", yamlOf("good", "i:1"))
	b.write("bad.yaml", "{")
	for range 3 {
		require.Equal(t, 2, b.load().FilesRead, "the files may be written twice within a tick of the file system's clock, so they must be read again")
	}
	b.clock.Step(2 * time.Second)
	require.Equal(t, 2, b.load().FilesRead)
	require.Zero(t, b.load().FilesRead)

	require.NoError(t, os.Chtimes(filepath.Join(b.path, "good.yaml"), time.Time{}, time.Unix(1, 0)))
	before := b.load()
	require.Equal(t, 1, before.FilesRead)
	b.clock.Step(time.Second)
	require.Equal(t, 1, b.load().FilesRead)
	b.clock.Step(time.Second)
	require.Equal(t, 1, b.load().FilesRead)
	require.Zero(t, b.load().FilesRead)
	require.Same(t, before.Pods[0], b.load().Pods[0])
}

func TestDirectory_DetectsAQuickChangeWithSameSizeAndTime(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	path, when := filepath.Join(b.path, "a.yaml"), time.Unix(1000, 0)
	b.write("a.yaml", yamlOf("a", "i:1"))
	require.NoError(t, os.Chtimes(path, when, when))
	b.requirePods("a-node1 i:1")
	b.write("a.yaml", yamlOf("a", "i:2"))
	require.NoError(t, os.Chtimes(path, when, when))
	b.requirePods("a-node1 i:2")
}

func TestIdentity_StaticPod(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	pod := b.load().Pods[0]
	require.Equal(t, "a-node1", pod.Name)
	require.Equal(t, "default", pod.Namespace)
	require.Equal(t, "Node1", pod.Spec.NodeName)
	require.Regexp(t, "^[0-9a-f]{32}$", pod.UID)
	require.Equal(t, map[string]string{
		podspec.SourceAnnotation: podspec.SourceFile,
		podspec.HashAnnotation:   string(pod.UID),
		podspec.SeenAnnotation:   "2026-01-02T03:04:05.000000000Z",
	}, pod.Annotations)
	require.Equal(t, corev1.PodStatus{Phase: corev1.PodPending}, pod.Status)
	require.Equal(t, []corev1.Toleration{{Operator: "Exists", Effect: "NoExecute"}}, pod.Spec.Tolerations)

	b.clock.Step(time.Hour)
	b.write("a.yaml", "# a comment\n"+yamlOf("a", "i:1"))
	require.Same(t, pod, b.load().Pods[0], "unchanged content must result in the same object")
	require.NoError(t, os.Rename(filepath.Join(b.path, "a.yaml"), filepath.Join(b.path, "b.yaml")))
	require.Same(t, pod, b.load().Pods[0], "the pod must not depend on the file name")

	b.write("b.yaml", yamlOf("a", "i:2"))
	edited := b.load().Pods[0]
	require.NotEqual(t, pod.UID, edited.UID)
	require.Equal(t, "2026-01-02T04:04:05.000000000Z", edited.Annotations[podspec.SeenAnnotation])
}

func TestIdentity_EditedManifestWithUIDIsTheSamePod(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	text := strings.Replace(yamlOf("a", "i:1"), "{name: a}", `{name: a, uid: my-uid, annotations: {`+podspec.SeenAnnotation+`: "never"}}`, 1)
	b.write("a.yaml", text)
	first := b.load().Pods[0]
	require.EqualValues(t, "my-uid", first.UID)

	b.clock.Step(time.Hour)
	b.write("a.yaml", strings.Replace(text, "i:1", "i:2", 1))
	second := b.load().Pods[0]
	require.Equal(t, first.UID, second.UID)
	require.NotEqual(t, first.Annotations[podspec.HashAnnotation], second.Annotations[podspec.HashAnnotation])
	require.Equal(t, "2026-01-02T03:04:05.000000000Z", first.Annotations[podspec.SeenAnnotation])
	require.Equal(t, "2026-01-02T03:04:05.000000000Z", second.Annotations[podspec.SeenAnnotation])
	require.Equal(t, "i:1", first.Spec.Containers[0].Image, "a returned pod must not change")
}

func TestIdentity_DependsOnTheNode(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	other, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: b.path, NodeName: "node2"})
	require.NoError(t, err)
	res, err := other.Load(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, b.load().Pods[0].UID, res.Pods[0].UID)
}

func TestIdentity_DependsOnTheOwner(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	other, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: b.path, NodeName: "Node1", Owner: "agent2"})
	require.NoError(t, err)
	res, err := other.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, b.load().Pods[0].Name, res.Pods[0].Name)
	require.NotEqual(t, b.load().Pods[0].UID, res.Pods[0].UID)
}

func TestDirectory_BadEditKeepsTheLastGoodPod(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	b.write("b.yaml", yamlOf("b", "i:1"))
	b.requirePods("a-node1 i:1", "b-node1 i:1")

	b.write("a.yaml", strings.Replace(yamlOf("a", "i:2"), "image", "imgae", 1))
	for range 3 {
		b.requirePods("a-node1 i:1", "b-node1 i:1")
	}
	typo := "a.yaml: document 1: spec.containers[0].imgae: Forbidden: unknown field; spec.containers[0].image: Required value"
	b.requireTold("+ " + typo)
	require.Len(t, b.Problems(), 1)

	b.write("a.yaml", "") // as if an editor had just truncated the file
	b.requirePods("a-node1 i:1", "b-node1 i:1")
	b.requireTold("+ a.yaml: the file contains no manifest", "- "+typo)

	b.write("a.yaml", yamlOf("a", "i:3"))
	b.requirePods("a-node1 i:3", "b-node1 i:1")
	b.requireTold("- a.yaml: the file contains no manifest")
	require.Empty(t, b.Problems())

	b.write("a.yaml", "{")
	b.load()
	b.remove("a.yaml")
	b.requirePods("b-node1 i:1")
	require.Empty(t, b.Problems())
}

func TestDirectory_BadDocumentKeepsTheWholeFile(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1")+"---\n"+yamlOf("b", "i:1"))
	b.requirePods("a-node1 i:1", "b-node1 i:1")
	b.write("a.yaml", yamlOf("a", "i:2")+"---\nkind: Pod\n")
	b.requirePods("a-node1 i:1", "b-node1 i:1")
	b.requireTold(`+ a.yaml: document 2: apiVersion: Required value: must be "v1"`)
}

func TestDirectory_UsesTheFirstOfTwoManifests(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("b.yaml", yamlOf("a", "i:2"))
	b.write("c.yaml", yamlOf("a", "i:2")+"---\n"+yamlOf("c", "i:2"))
	b.requirePods("a-node1 i:2", "c-node1 i:2")
	b.requireTold(fmt.Sprintf(`+ c.yaml: document 1: metadata.name: Duplicate value: "default/a-node1": already defined in %s, document 1`, "b.yaml"))

	b.write("a.yaml", yamlOf("a", "i:1"))
	b.requirePods("a-node1 i:1", "c-node1 i:2")
	require.Len(t, b.Problems(), 2)
	b.remove("a.yaml")
	b.remove("b.yaml")
	b.requirePods("a-node1 i:2", "c-node1 i:2")
	require.Empty(t, b.Problems())
}

func TestDirectory_TwoPodsWithOneUID(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, name := range []string{"a", "b"} {
		b.write(name+".yaml", strings.Replace(yamlOf(name, "i:1"), "{name", "{uid: one, name", 1))
	}
	b.requirePods("a-node1 i:1")
	b.requireTold(`+ b.yaml: document 1: metadata.uid: Duplicate value: "one": already defined in a.yaml, document 1`)
}

func TestDirectory_RemovedFolderKeepsItsPods(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	b.write("bad.yaml", "{")
	b.load()
	b.told = nil
	away := b.path + ".away"
	require.NoError(t, os.Rename(b.path, away))
	for range 2 {
		res, err := b.Load(t.Context())
		require.ErrorIs(t, err, os.ErrNotExist)
		require.Len(t, res.Pods, 1)
		require.Len(t, res.Problems, 2, "the problem of the directory, and the previous problem of its file")
	}
	require.Len(t, b.told, 1)
	require.Contains(t, b.told[0], "folder cannot be read")

	require.NoError(t, os.Rename(away, b.path))
	require.Len(t, b.load().Pods, 1)
	require.Len(t, b.told, 2)
	require.Equal(t, "-"+b.told[0][1:], b.told[1])
}

func TestDirectory_UnreadableFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(b *bed, path string) error
		want string
	}{
		"loop of links": {func(_ *bed, path string) error { return os.Symlink(filepath.Base(path), path) }, "too many levels of symbolic links"},
		"link to nothing": {
			func(_ *bed, path string) error { return os.Symlink("nowhere", path) },
			"symbolic link to a file that does not exist",
		},
		"two megabytes": {
			func(_ *bed, path string) error { return os.WriteFile(path, make([]byte, 2<<20), 0o600) },
			"the file has 2097152 bytes, more than the limit of 1048576",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.write("a.yaml", yamlOf("a", "i:1"))
			b.write("x.yaml", yamlOf("x", "i:1"))
			b.requirePods("a-node1 i:1", "x-node1 i:1")
			b.remove("x.yaml")
			require.NoError(t, c.make(b, filepath.Join(b.path, "x.yaml")))
			for range 3 {
				b.requirePods("a-node1 i:1", "x-node1 i:1")
			}
			b.requireTold("+ x.yaml: " + c.want)
			b.remove("x.yaml")
			b.write("x.yaml", yamlOf("x", "i:1"))
			b.requirePods("a-node1 i:1", "x-node1 i:1")
			b.requireTold("- x.yaml: " + c.want)
		})
	}
}

func TestDirectory_FileReplacedByAFolderIsRemoved(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	b.requirePods("a-node1 i:1")
	b.remove("a.yaml")
	require.NoError(t, os.Mkdir(filepath.Join(b.path, "a.yaml"), 0o700))
	b.requirePods()
	b.requireTold()
}

func TestDirectory_AtomicRenameOverAFile(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	b.load()
	b.clock.Step(time.Minute)
	b.load()
	require.Zero(t, b.load().FilesRead)
	b.write(".a.yaml.tmp", yamlOf("a", "i:2"))
	require.NoError(t, os.Chtimes(filepath.Join(b.path, ".a.yaml.tmp"), time.Unix(1, 0), time.Unix(1, 0)))
	require.NoError(t, os.Rename(filepath.Join(b.path, ".a.yaml.tmp"), filepath.Join(b.path, "a.yaml")))
	b.requirePods("a-node1 i:2")
}

// A mounted ConfigMap: each name is a link through ..data, and only ..data changes.
func TestDirectory_SwitchedLinksOfAConfigMap(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, version := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(filepath.Join(b.path, "..v"+version), 0o700))
		file := filepath.Join("..v"+version, "a.yaml")
		b.write(file, yamlOf("a", "i:"+version))
		require.NoError(t, os.Chtimes(filepath.Join(b.path, file), time.Unix(1, 0), time.Unix(1, 0)))
	}
	require.NoError(t, os.Symlink("..v1", filepath.Join(b.path, "..data")))
	require.NoError(t, os.Symlink(filepath.Join("..data", "a.yaml"), filepath.Join(b.path, "a.yaml")))
	b.requirePods("a-node1 i:1")
	b.clock.Step(time.Minute)
	b.requirePods("a-node1 i:1")
	require.Zero(t, b.load().FilesRead)

	require.NoError(t, os.Symlink("..v2", filepath.Join(b.path, "..tmp")))
	require.NoError(t, os.Rename(filepath.Join(b.path, "..tmp"), filepath.Join(b.path, "..data")))
	b.requirePods("a-node1 i:2")
	b.requireTold()
}

func TestDirectory_CancelledPassChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	b.load()
	b.write("a.yaml", "{")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := b.Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, res.Pods, 1)
	require.Empty(t, res.Problems)
}

// TestDirectory_IgnoresPodsAfterMaxPods checks that all files of a directory share one limit,
// and that ConfigMaps and Secrets do not count.
func TestDirectory_IgnoresPodsAfterMaxPods(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	documents := func(from, to int) string {
		var all []string
		for i := from; i < to; i++ {
			all = append(all, yamlOf(fmt.Sprintf("p%04d", i), "i:1"))
		}
		return strings.Join(all, "---\n")
	}
	for i := range 10 {
		b.write(fmt.Sprintf("%d.yaml", i), documents(100*i, 100*i+100))
	}
	b.write("last.yaml", documents(podsource.MaxPods, podsource.MaxPods+1))
	res := b.load()
	require.Len(t, res.Pods, podsource.MaxPods)
	require.Equal(t, "p0999-node1", res.Pods[podsource.MaxPods-1].Name)
	bound := "last.yaml: document 1: a source may define at most 1000 pods: ignored pod default/p1000-node1 and all later pods, 1 in total"
	b.requireTold("+ " + bound)

	b.remove("0.yaml")
	require.Len(t, b.load().Pods, podsource.MaxPods+1-100)
	b.requireTold("- " + bound)
}
