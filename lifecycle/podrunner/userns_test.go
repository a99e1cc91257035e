package podrunner_test

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func newRanges(t *testing.T, cfg podrunner.IDRangesConfig) *podrunner.IDRanges {
	t.Helper()
	r, err := podrunner.NewIDRanges(cfg)
	require.NoError(t, err)
	return r
}

func TestIDRanges(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "pods")
	r := newRanges(t, podrunner.IDRangesConfig{PodRoot: root, Pods: 2})
	_, ok := r.Lookup("a")
	require.False(t, ok)
	a, err := r.Acquire("a")
	require.NoError(t, err)
	require.Equal(t, podrunner.IDRange{First: 65536, Length: 65536}, a)
	again, err := r.Acquire("a")
	require.NoError(t, err)
	require.Equal(t, a, again)
	b, err := r.Acquire("b")
	require.NoError(t, err)
	require.Equal(t, uint32(131072), b.First)
	_, err = r.Acquire("c")
	require.ErrorIs(t, err, podrunner.ErrNoIDs)

	text, err := os.ReadFile(filepath.Join(root, "a/userns"))
	require.NoError(t, err)
	require.JSONEq(t, `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`,
		string(text), "the file must have the kubelet's format")

	second := newRanges(t, podrunner.IDRangesConfig{PodRoot: root, Pods: 2})
	got, ok := second.Lookup("b")
	require.True(t, ok, "the range must be known after a restart")
	require.Equal(t, b, got)
	_, err = second.Acquire("c")
	require.ErrorIs(t, err, podrunner.ErrNoIDs)
	require.NoError(t, second.Release("a"))
	require.NoError(t, second.Release("a"), "again")
	c, err := second.Acquire("c")
	require.NoError(t, err)
	require.Equal(t, a, c)
	require.NoFileExists(t, filepath.Join(root, "a/userns"))
}

func TestIDRanges_NotReusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRanges(t, podrunner.IDRangesConfig{PodRoot: t.TempDir(), First: 1 << 20})
	seen := map[uint32]bool{}
	for i := range 50 {
		uid := types.UID(strconv.Itoa(i))
		ids, err := r.Acquire(uid)
		require.NoError(t, err)
		require.False(t, seen[ids.First])
		seen[ids.First] = true
		require.NoError(t, r.Release(uid))
	}
}

func TestIDRanges_ConcurrentAcquiresAreDistinct(t *testing.T) {
	t.Parallel()
	r := newRanges(t, podrunner.IDRangesConfig{PodRoot: t.TempDir()})
	firsts := make([]uint32, 20)
	var wg sync.WaitGroup
	for i := range firsts {
		wg.Go(func() {
			ids, err := r.Acquire(types.UID(strconv.Itoa(i)))
			if err == nil {
				firsts[i] = ids.First
			}
		})
	}
	wg.Wait()
	seen := map[uint32]bool{0: true}
	for _, f := range firsts {
		require.False(t, seen[f])
		seen[f] = true
	}
}

// An unreadable file could contain any range, so nothing is allocated. Other pods keep their
// IDs. Their IDs, and the IDs of the pod with the unreadable file, can be released.
func TestIDRanges_UnreadableFileConcernsNoOtherPod(t *testing.T) {
	t.Parallel()
	mapping := func(host, container, length string) string {
		m := `[{"hostId":` + host + `,"containerId":` + container + `,"length":` + length + `}]`
		return `{"uidMappings":` + m + `,"gidMappings":` + m + `}`
	}
	for name, text := range map[string]string{
		"no JSON": "{", "nothing": "{}", "users only": `{"uidMappings":[{"hostId":65536,"length":65536}]}`,
		"root": mapping("0", "0", "65536"), "not from 0": mapping("65536", "1", "65536"), "odd": mapping("65537", "0", "65536"),
		"short": mapping("65536", "0", "1"), "out of range": mapping("655360", "0", "65536"), "taken": mapping("131072", "0", "65536"),
	} {
		root := t.TempDir()
		for pod, content := range map[string]string{"a": mapping("131072", "0", "65536"), "b": text} {
			require.NoError(t, os.Mkdir(filepath.Join(root, pod), 0o750))
			require.NoError(t, os.WriteFile(filepath.Join(root, pod, "userns"), []byte(content), 0o600))
		}
		r := newRanges(t, podrunner.IDRangesConfig{PodRoot: root, Pods: 5})
		_, err := r.Acquire("new")
		require.ErrorContains(t, err, "user namespace of pod b", name)
		_, err = r.Acquire("b")
		require.ErrorContains(t, err, "user namespace of pod b", name)
		a, ok := r.Lookup("a")
		require.True(t, ok, name)
		again, err := r.Acquire("a")
		require.NoError(t, err, name)
		require.Equal(t, a, again, name)
		require.NoError(t, r.Release("none"), name)
		if name == "taken" {
			require.NoError(t, r.Release("a"))
			b, err := r.Acquire("b")
			require.NoError(t, err, "after the release, the range must be available")
			require.Equal(t, a, b)
			continue
		}
		require.NoError(t, r.Release("b"), name)
		require.NoFileExists(t, filepath.Join(root, "b/userns"))
		_, err = r.Acquire("new")
		require.NoError(t, err, name)
		require.NoError(t, r.Release("a"), name)
	}
}

func TestIDRanges_UnreadableFileIsReadAgain(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a/userns"), 0o750))
	r := newRanges(t, podrunner.IDRangesConfig{PodRoot: root})
	_, err := r.Acquire("new")
	require.ErrorContains(t, err, "user namespace of pod a")
	require.NoError(t, os.Remove(filepath.Join(root, "a/userns")))
	_, err = r.Acquire("new")
	require.NoError(t, err, "after the repair of the file, the allocation must succeed")
}

func TestIDRanges_InvalidRootAndUIDs(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(root, nil, 0o600))
	r := newRanges(t, podrunner.IDRangesConfig{PodRoot: root})
	_, err := r.Acquire("a")
	require.ErrorContains(t, err, "list user namespaces of pods: ")
	_, ok := r.Lookup("a")
	require.False(t, ok)
	r = newRanges(t, podrunner.IDRangesConfig{PodRoot: t.TempDir()})
	for _, uid := range []types.UID{"", "..", "a/b"} {
		_, err = r.Acquire(uid)
		require.ErrorContains(t, err, "is not the name of a directory")
		require.ErrorContains(t, r.Release(uid), "is not the name of a directory")
	}
	_, err = podrunner.NewIDRanges(podrunner.IDRangesConfig{PodRoot: "x", First: 1, Pods: -1})
	for _, text := range []string{`field PodRoot: "x" is not absolute`, "field First: 1 is not a multiple of 65536", "field Pods: -1 is not between"} {
		require.ErrorContains(t, err, text)
	}
}

// An agent that is killed while it stores the IDs of a pod leaves a temporary file.
func TestIDRanges_ReleaseRemovesTheRemainsOfAnInterruptedWrite(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	ids, err := podrunner.NewIDRanges(podrunner.IDRangesConfig{PodRoot: root})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(root, "uid"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(root, "uid", "userns.new"), []byte("{"), 0o600))
	require.NoError(t, ids.Release("uid"))
	entries, err := os.ReadDir(filepath.Join(root, "uid"))
	require.NoError(t, err)
	require.Empty(t, entries, "a file would keep the pod's directory for ever")
}
