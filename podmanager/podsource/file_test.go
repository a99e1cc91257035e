package podsource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestIsManifestName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.yaml": true, "a.yml": true, "a.json": true, "A.YAML": true, "a.b.yaml": true, "a b.yml": true,
		".a.yaml": false, "..data": false, ".#a.yaml": false, "#a.yaml#": false, "a.yaml~": false,
		".a.yaml.swp": false, "a.yaml.swp": false, "a.yaml.tmp": false, "a.txt": false, "a": false,
		"yaml": false, ".yaml": false, "": false,
	} {
		require.Equal(t, want, isManifestName(name), name)
	}
}

func TestLoad_FileRemovedDuringTheLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	f, opened := load(path, nil, origin{source: podspec.SourceFile, node: "n"}, time.Time{})
	require.Nil(t, f)
	require.False(t, opened)
	_, _, err := read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestRead_RejectsLargeAndIrregularFiles(t *testing.T) {
	t.Parallel()
	_, _, err := read(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")

	path := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(path, make([]byte, MaxManifestBytes), 0o600))
	data, info, err := read(path)
	require.NoError(t, err)
	require.Len(t, data, MaxManifestBytes)
	require.EqualValues(t, MaxManifestBytes, info.Size())

	require.NoError(t, os.WriteFile(path, make([]byte, MaxManifestBytes+1), 0o600))
	_, _, err = read(path)
	require.EqualError(t, err, "the file has 1048577 bytes, more than the limit of 1048576")
}

func TestLoad_UnreadableFileIsOneProblem(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	path := filepath.Join(file, "b.yaml")
	first, _ := load(path, nil, origin{source: podspec.SourceFile, node: "n"}, time.Time{})
	require.Len(t, first.problems, 1)
	require.Equal(t, path, first.problems[0].File)
	require.NotContains(t, first.problems[0].Err.Error(), path, "the path must occur once in the message")
	again, _ := load(path, first, origin{source: podspec.SourceFile, node: "n"}, time.Time{})
	require.Same(t, first, again)
}

func TestLoad_RejectedFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	good := []byte(podWith("", ""))
	require.NoError(t, os.WriteFile(path, good, 0o600))
	first, _ := load(path, nil, origin{source: podspec.SourceFile, node: "n"}, time.Time{})
	require.Len(t, first.manifests, 1)

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", MaxManifestBytes+1)), 0o600))
	refused, opened := load(path, first, origin{source: podspec.SourceFile, node: "n"}, time.Time{})
	require.False(t, opened)
	require.Len(t, refused.problems, 1)
	require.Equal(t, first.manifests, refused.manifests)

	require.NoError(t, os.WriteFile(path, good, 0o600))
	after, opened := load(path, refused, origin{source: podspec.SourceFile, node: "n"}, time.Time{})
	require.True(t, opened)
	require.Empty(t, after.problems)
	require.Equal(t, first.manifests, after.manifests)
}

func TestStampSeen_KeepsUnchangedPods(t *testing.T) {
	t.Parallel()
	pod := func(uid, hash string) manifest {
		p := new(corev1.Pod)
		p.UID, p.Annotations = types.UID(uid), map[string]string{podspec.HashAnnotation: hash}
		return manifest{pod: p}
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before, byUID := stampSeen([]manifest{pod("same", "1"), pod("edited", "1"), pod("gone", "1")}, nil, start)
	after, _ := stampSeen([]manifest{pod("new", "1"), pod("edited", "2"), pod("same", "1")}, byUID, start.Add(time.Minute))

	require.Same(t, before[0], after[2])
	require.NotSame(t, before[1], after[1])
	require.Equal(t, "2026-01-01T00:01:00.000000000Z", after[0].Annotations[podspec.SeenAnnotation])
	require.Equal(t, "2026-01-01T00:00:00.000000000Z", after[1].Annotations[podspec.SeenAnnotation])
	require.Equal(t, "1", before[1].Annotations[podspec.HashAnnotation])

	again, _ := stampSeen([]manifest{pod("gone", "1")}, map[types.UID]*corev1.Pod{}, start.Add(time.Hour))
	require.Equal(t, "2026-01-01T01:00:00.000000000Z", again[0].Annotations[podspec.SeenAnnotation], "a file that was missing must get a new time")
}

func TestCompareProblems(t *testing.T) {
	t.Parallel()
	a, b := Problem{File: "a", Err: os.ErrNotExist}, Problem{File: "b", Document: 2, Err: os.ErrPermission}
	require.EqualError(t, a, "a: file does not exist")
	require.EqualError(t, b, "b: document 2: permission denied")
	require.ErrorIs(t, b, os.ErrPermission)
	added, gone := compareProblems([]Problem{a}, []Problem{b})
	require.Equal(t, []Problem{b}, added)
	require.Equal(t, []Problem{a}, gone)
	added, gone = compareProblems([]Problem{a, b}, []Problem{b, a})
	require.Empty(t, added)
	require.Empty(t, gone)
}
