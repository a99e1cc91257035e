package status_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/status"
)

// An upgraded agent must find the files of its predecessor.
func TestSaved_PathIsFixed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}}
	require.NoError(t, status.NewSaved(state.Files(dir)).Publish(t.Context(), status.Change{Pod: pod, New: corev1.PodStatus{Phase: corev1.PodFailed}}))
	text, err := os.ReadFile(filepath.Join(dir, "statuses", "1.json"))
	require.NoError(t, err)
	require.Regexp(t, `^\{"kind":"Pod","apiVersion":"v1","metadata":\{.*"phase":"Failed"\}\}\n$`, string(text))
}

// counted is a store that counts its writes.
type counted struct {
	*state.MemoryStore
	synced, unsynced int
	err              error // error of PutUnsynced
}

func (c *counted) Put(ctx context.Context, key string, value []byte) error {
	c.synced++
	return c.MemoryStore.Put(ctx, key, value)
}

func (c *counted) PutUnsynced(ctx context.Context, key string, value []byte) error {
	c.unsynced++
	if c.err != nil {
		return c.err
	}
	return c.MemoryStore.Put(ctx, key, value)
}

func TestSaved_SyncsOnlyTerminalPhases(t *testing.T) {
	t.Parallel()
	store := &counted{MemoryStore: state.Memory()}
	saved := status.NewSaved(store)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded} {
		require.NoError(t, saved.Publish(t.Context(), status.Change{Pod: pod, New: corev1.PodStatus{Phase: phase}}))
	}
	require.Equal(t, []int{1, 2}, []int{store.synced, store.unsynced})
	require.NoError(t, saved.Load(t.Context()))
	found, _ := saved.Status("1")
	require.Equal(t, corev1.PodSucceeded, found.Phase)
}

// A status is stored again only if it has changed, or if the store may not have it.
func TestSaved_StoresEachStatusOnce(t *testing.T) {
	t.Parallel()
	store := &counted{MemoryStore: state.Memory()}
	saved := status.NewSaved(store)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	publish := func(phase corev1.PodPhase) error {
		return saved.Publish(t.Context(), status.Change{Pod: pod, New: corev1.PodStatus{Phase: phase}})
	}
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodPending} {
		require.NoError(t, publish(phase))
	}
	require.Equal(t, 3, store.unsynced)

	store.err = errors.New("the disk is full")
	require.ErrorIs(t, publish(corev1.PodRunning), store.err)
	store.err = nil
	require.NoError(t, publish(corev1.PodPending))
	require.Equal(t, 5, store.unsynced, "the value must be stored again, because the failed write may have changed it")

	saved.Forget("1")
	require.NoError(t, saved.RemoveOrphans(t.Context(), func(types.UID) bool { return true }))
	require.NoError(t, publish(corev1.PodPending))
	require.Equal(t, 6, store.unsynced, "the value must be stored again after its deletion")
}

// The status of an earlier process is used until a newer status is published. A pod that was
// removed and created again starts without a status.
func TestSaved_LoadedStatusIsUsedUntilThePodIsPublished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}}
	ended := status.Change{Pod: pod, New: corev1.PodStatus{Phase: corev1.PodFailed}}
	require.NoError(t, status.NewSaved(state.Files(dir)).Load(t.Context()))
	require.NoError(t, status.NewSaved(state.Files(dir)).Publish(t.Context(), ended))

	f := status.NewSaved(state.Files(dir))
	require.NoError(t, f.Load(t.Context()))
	found, ok := f.Status("1")
	require.True(t, ok)
	require.Equal(t, corev1.PodFailed, found.Phase)
	require.NoError(t, f.Publish(t.Context(), ended))
	_, ok = f.Status("1")
	require.False(t, ok)
}

func onDisk(t *testing.T, dir string) (*status.Saved, *status.Manager, *status.Publisher) {
	t.Helper()
	files := status.NewSaved(state.Files(dir))
	require.NoError(t, files.Load(t.Context()))
	m, err := status.New(status.Config{Saved: files.Status})
	require.NoError(t, err)
	p, err := status.NewPublisher(status.PublisherConfig{Statuses: m, Sink: files})
	require.NoError(t, err)
	return files, m, p
}

func TestSaved_StatusIsStableAcrossARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "status")
	_, m, p := onDisk(t, dir)
	pod := newPod("Always", "a")
	in := status.Input{Pod: pod, Runtime: runningIn("a"), Now: at(0), Probes: func(string, string) (startup, ready status.ProbeResult) {
		return status.NoProbe, status.ProbePassed
	}}
	s, _ := m.SetPodStatus(pod, status.Generate(in))
	require.NoError(t, p.Flush(t.Context()))

	_, m, p = onDisk(t, dir)
	previous, ok := m.GetPodStatus(pod.UID)
	require.True(t, ok)
	require.True(t, status.Equal(pod, &s, &previous))
	in.Previous, in.Now = previous, at(1000)
	in.Probes = func(string, string) (startup, ready status.ProbeResult) { return status.NoProbe, status.ProbeUnknown }
	again, _ := m.SetPodStatus(pod, status.Generate(in))
	require.Equal(t, jsonOf(t, &s), jsonOf(t, &again), "the container must be ready, with the old transition time")
	require.NoError(t, p.Flush(t.Context()))

	require.Equal(t, corev1.PodFailed, m.TerminatePod(pod).Phase)
	require.NoError(t, p.Flush(t.Context()))
	files, m, p := onDisk(t, dir)
	again, _ = m.SetPodStatus(pod, status.Generate(in))
	require.Equal(t, corev1.PodFailed, again.Phase, "a terminal phase must survive a restart of the process")

	require.Equal(t, 1, m.RemoveOrphanedStatuses(func(types.UID) bool { return false }))
	require.NoError(t, p.Flush(t.Context()))
	require.NoError(t, files.RemoveOrphans(t.Context(), func(types.UID) bool { return true }))
	left, err := os.ReadDir(filepath.Join(dir, "statuses"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSaved_UnreadableFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "statuses")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, body := range map[string]string{
		"good.json":    `{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"good"},"status":{"phase":"Running"}}`,
		"later.json":   `{"apiVersion":"v2","kind":"Pod","metadata":{"uid":"later"},"status":{"phase":"Running"}}`,
		"another.json": `{"apiVersion":"v1","kind":"Node","metadata":{"uid":"another"}}`,
		"torn.json":    `{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"torn"},"status":{"pha` + "\x00\x00\x00\x00",
		"twice.json":   `{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"twice"}}{"apiVersion":"v1"}`,
		"empty.json":   ``,
		"broken.json":  `{"metadata":`,
		"renamed.json": `{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"other"}}`,
		"x.json.new":   `{`,
		"notes.txt":    `left alone`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.json"), 0o700))
	require.NoError(t, os.Symlink("good.json", filepath.Join(dir, "link.json")))
	files := status.NewSaved(state.Files(root))
	err := files.Load(t.Context())
	for _, want := range []string{"broken.json", `renamed.json: contains the status of another pod, with UID "other"`, "link.json", `later.json: contains kind "Pod" of version "v2", want a Pod of version v1`, `another.json: contains kind "Node"`, "torn.json", "twice.json", "empty.json"} {
		require.ErrorContains(t, err, want)
	}
	for _, uid := range []types.UID{"later", "another", "torn", "twice", "empty", "broken", "renamed", "other", "dir", "link"} {
		_, ok := files.Status(uid)
		require.False(t, ok, uid)
	}
	s, ok := files.Status("good")
	require.True(t, ok)
	require.Equal(t, corev1.PodRunning, s.Phase)
	require.NoFileExists(t, filepath.Join(dir, "x.json.new"))
	require.FileExists(t, filepath.Join(dir, "notes.txt"))

	require.NoError(t, files.RemoveOrphans(t.Context(), func(types.UID) bool { return true }))
	require.NoError(t, files.RemoveOrphans(t.Context(), func(types.UID) bool { return false }))
	require.NoFileExists(t, filepath.Join(dir, "good.json"))
	_, ok = files.Status("good")
	require.False(t, ok)
}

func TestSaved_UnwritableFiles(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	require.Error(t, status.NewSaved(state.Files(blocked)).Load(t.Context()))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "../up"}}
	require.ErrorContains(t, status.NewSaved(state.Files(blocked)).Publish(t.Context(), status.Change{Pod: pod}), "save status: ")

	root := t.TempDir()
	dir := filepath.Join(root, "statuses")
	files := status.NewSaved(state.Files(root))
	require.NoError(t, files.Publish(t.Context(), status.Change{Pod: pod}))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no UID must lead out of the directory")
	require.Equal(t, "..%2Fup.json", left[0].Name())
	files.Forget("../up")
	files.Forget("never seen")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, files.Publish(ctx, status.Change{Pod: pod}), context.Canceled)

	require.NoError(t, os.Mkdir(filepath.Join(dir, "x.json"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.json", "y"), nil, 0o600))
	require.Error(t, files.Publish(t.Context(), status.Change{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "x"}}}))
	left, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "a file that cannot be renamed must be removed")
}

func TestSaved_UIDMayLookLikeATemporaryFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, uid := range []types.UID{".tmp-1", "x.json.new", ".", "..", "", "a/b", "a%2Fb", "a\\b", "x.json", "\xff"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		require.NoError(t, status.NewSaved(state.Files(dir)).Publish(t.Context(), status.Change{Pod: pod, New: corev1.PodStatus{Phase: corev1.PodRunning}}))
		files := status.NewSaved(state.Files(dir))
		err := files.Load(t.Context())
		if uid == "\xff" {
			require.Error(t, err, "JSON cannot represent this value")
			continue
		}
		require.NoError(t, err, uid)
		s, ok := files.Status(uid)
		require.True(t, ok, uid)
		require.Equal(t, corev1.PodRunning, s.Phase)
		require.NoError(t, files.RemoveOrphans(t.Context(), func(types.UID) bool { return false }))
	}
}
