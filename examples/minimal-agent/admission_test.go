package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/status"
)

// still is an agent of which no part runs: what it does next is for the test to say.
type still struct {
	*agent
	t   *testing.T
	dir string
}

func newStill(t *testing.T, args ...string) *still {
	t.Helper()
	dir := t.TempDir()
	o, err := parseOptions(append([]string{"--manifests", dir, "--root-dir", t.TempDir(), "--node-name", "node1"}, args...), io.Discard)
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	counts, err := newExporter(log)
	require.NoError(t, err)
	n, err := openNode(t.Context(), o, &console{out: io.Discard}, counts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	a, err := newAgent(t.Context(), o, n, &console{out: io.Discard}, log)
	require.NoError(t, err)
	return &still{agent: a, t: t, dir: dir}
}

// write makes the named pods' manifests the only ones, and has the agent read them.
func (s *still) write(manifests map[string]string) {
	s.t.Helper()
	before, err := filepath.Glob(filepath.Join(s.dir, "*.yaml"))
	require.NoError(s.t, err)
	for _, file := range before {
		require.NoError(s.t, os.Remove(file))
	}
	for name, text := range manifests {
		manifest(s.t, s.dir, name+".yaml", text)
	}
	read, err := s.source.Load(s.t.Context())
	require.NoError(s.t, err)
	require.Empty(s.t, read.Problems)
	require.NoError(s.t, s.merge.Set(s.t.Context(), "file", read.Pods))
}

// reasons are why pods were refused, by name; those that may start have an empty one.
func (s *still) reasons() map[string]string {
	out := map[string]string{}
	for _, p := range s.podsWithStatus() {
		out[strings.TrimSuffix(p.Name, "-node1")] = ""
		if s.isRejected(p.UID) {
			out[strings.TrimSuffix(p.Name, "-node1")] = p.Status.Reason
		}
	}
	return out
}

// plain are manifests of pods of these names.
func plain(names ...string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name] = podYAML(name, "demo/web:1")
	}
	return out
}

// TestAdmission_PodThatComesBackIsAskedAgain has manifests go and come back before
// housekeeping has forgotten what was said of their pods.
func TestAdmission_PodThatComesBackIsAskedAgain(t *testing.T) {
	t.Parallel()
	t.Run("refused for want of room", func(t *testing.T) {
		t.Parallel()
		s := newStill(t, "--max-pods", "1")
		all := plain("a", "b", "c", "d")
		want := map[string]string{"a": "", "b": "OutOfpods", "c": "OutOfpods", "d": "OutOfpods"}
		s.write(all)
		require.Equal(t, want, s.reasons())
		for range 3 {
			s.write(plain("a"))
			s.write(all)
			require.Equal(t, want, s.reasons())
		}
		s.write(nil)
		s.write(all)
		require.Equal(t, want, s.reasons(), "those that come back count beside each other")
	})
	t.Run("refused for its fields", func(t *testing.T) {
		t.Parallel()
		s := newStill(t)
		bad := map[string]string{"a": podYAML("a", "demo/web:1", "    resources: {limits: {example.com/gpu: 1}}\n")}
		for range 2 {
			s.write(bad)
			require.Equal(t, map[string]string{"a": "UnsupportedFields"}, s.reasons())
			s.write(nil)
		}
	})
	for name, before := range map[string]corev1.PodStatus{
		"evicted": {Phase: corev1.PodFailed, Reason: "Evicted"},
		"ended":   {Phase: corev1.PodSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStill(t, "--max-pods", "1")
			s.write(plain("a"))
			require.Equal(t, map[string]string{"a": ""}, s.reasons())
			a, _ := s.pods.GetPodByName("default", "a-node1")
			s.statuses.SetPodStatus(a, before)
			s.write(plain("a", "b"))
			require.Equal(t, map[string]string{"a": "", "b": ""}, s.reasons(), "one that has ended needs no room")
			s.write(plain("b"))
			s.write(plain("a", "b"))
			require.Equal(t, map[string]string{"a": "OutOfpods", "b": ""}, s.reasons())
		})
	}
}

// TestAdmission_PodThatHasEndedBeforeTheAgentIsNotAsked: to refuse it would say
// something else of its end.
func TestAdmission_PodThatHasEndedBeforeTheAgentIsNotAsked(t *testing.T) {
	t.Parallel()
	s := newStill(t, "--max-pods", "1")
	all := plain("a", "b")
	s.write(nil)
	s.ready = false // as if the folder was not read yet
	for name, text := range all {
		manifest(t, s.dir, name+".yaml", text)
	}
	read, err := s.source.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, read.Pods, 2)
	s.statuses.SetPodStatus(read.Pods[0], corev1.PodStatus{Phase: corev1.PodSucceeded})
	s.desired(t.Context(), read.Pods)
	require.Equal(t, map[string]string{"a": "", "b": ""}, s.reasons())
	require.Equal(t, corev1.PodSucceeded, s.podsWithStatus()[0].Status.Phase)
}

// TestAdmission_MendedPodsCountBesideEachOther: until housekeeping has forgotten what
// was said of a refused pod, its status is that of one that has ended.
func TestAdmission_MendedPodsCountBesideEachOther(t *testing.T) {
	t.Parallel()
	s := newStill(t, "--max-pods", "2")
	pods := func(more ...string) map[string]string {
		out := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			out[name] = strings.Replace(podYAML(name, "demo/web:1", more...), "{name: "+name+"}", "{name: "+name+", uid: u"+name+"}", 1)
		}
		return out
	}
	s.write(pods("    resources: {limits: {example.com/gpu: 1}}\n"))
	for _, reason := range s.reasons() {
		require.Equal(t, "UnsupportedFields", reason)
	}
	s.write(pods())
	require.Equal(t, map[string]string{"a": "", "b": "", "c": "OutOfpods"}, s.reasons())
}

// TestAdmission_EditedPodTakesItsOwnPlace: with its content the UID of a pod changes.
// The pod before it has gone when the new one is asked for.
func TestAdmission_EditedPodTakesItsOwnPlace(t *testing.T) {
	t.Parallel()
	s := newStill(t, "--max-pods", "1")
	s.write(plain("a"))
	a, _ := s.pods.GetPodByName("default", "a-node1")
	s.write(map[string]string{"a": podYAML("a", "demo/web:2")})
	b, _ := s.pods.GetPodByName("default", "a-node1")
	require.NotEqual(t, a.UID, b.UID)
	require.Equal(t, map[string]string{"a": ""}, s.reasons())
}

// TestAdmission_EndsWithItsAgent: to ask for each pod may take long.
func TestAdmission_EndsWithItsAgent(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	for name, text := range plain("a", "b") {
		manifest(t, s.dir, name+".yaml", text)
	}
	read, err := s.source.Load(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.desired(ctx, read.Pods)
	require.Empty(t, s.pods.GetPods())
	require.False(t, s.ready, "nobody knows what is desired")
}

// TestAdmission_RefusedBeforeAllSourcesHaveAnswered: the sweep does not run until then.
func TestAdmission_RefusedBeforeAllSourcesHaveAnswered(t *testing.T) {
	t.Parallel()
	s := newStill(t, "--max-pods", "1", "--manifest-url", "http://127.0.0.1:1/pods")
	s.write(plain("a", "b"))
	require.False(t, s.ready)
	require.Equal(t, map[string]string{"a": "", "b": "OutOfpods"}, s.reasons())
	s.write(plain("a"))
	s.write(plain("a", "b"))
	require.Equal(t, map[string]string{"a": "", "b": "OutOfpods"}, s.reasons(), "it is asked again")
	s.write(nil)
	s.write(plain("b"))
	require.Equal(t, map[string]string{"b": ""}, s.reasons())
	b, _ := s.pods.GetPodByName("default", "b-node1")
	require.False(t, s.workers.IsPodTerminationRequested(b.UID))
	require.Contains(t, s.workers.KnownPods(), b.UID, "it begins at once")
	require.Equal(t, corev1.PodPending, s.podsWithStatus()[0].Status.Phase)
}

// TestAdmission_MovingManifestsAdmitsNoMore moves refused manifests away and back for as
// long as it takes housekeeping to run a few times.
func TestAdmission_MovingManifestsAdmitsNoMore(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, aside := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b"} {
		manifest(t, dir, name+".yaml", podYAML(name, "demo/web:1"))
	}
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir(), "--max-pods", "2")
	await(t, "a and b run", func() bool { return a.phase(t, "a") == "Running" && a.phase(t, "b") == "Running" })
	const moved = 5
	for i := range moved {
		manifest(t, aside, fmt.Sprintf("more%d.yaml", i), podYAML(fmt.Sprint("more", i), "demo/web:1"))
	}
	move := func(from, to string) {
		for i := range moved {
			name := fmt.Sprintf("more%d.yaml", i)
			require.NoError(t, os.Rename(filepath.Join(from, name), filepath.Join(to, name)))
		}
	}
	for range 10 {
		move(aside, dir)
		await(t, "they are refused", func() bool {
			refused := 0
			for _, p := range a.pods(t) {
				if p.Status.Reason == "OutOfpods" {
					refused++
				}
			}
			return refused == moved
		})
		move(dir, aside)
		await(t, "they are gone", func() bool { return len(a.pods(t)) == 2 })
	}
	require.NoError(t, a.stop())
	boxes, err := node.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{})
	require.NoError(t, err)
	require.Len(t, boxes, 2, "no other pod was begun")
}

// Found by an attack: an agent that got SIGTERM while it was deciding about a pod that ran
// said that the pod had failed, and the next agent believed it.
func TestAdmission_ThatIsCutShortRefusesNobody(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	s.write(plain("web"))
	pod := s.pods.GetPods()[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.mu.Lock()
	s.admit(ctx, pod, podworker.Create, nil)
	s.mu.Unlock()
	require.Equal(t, map[string]string{"web": ""}, s.reasons())
	require.NotEqual(t, corev1.PodFailed, s.statuses.PodPhase(pod.UID))
}

// A refusal of an agent before this one is no end, though the status shows containers of
// the version that ran before.
func TestAdmission_AnEarlierAgentsRefusalDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	s.write(plain("web"))
	pod := s.pods.GetPods()[0]
	ran := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}}
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		counts bool
	}{
		"refused": {refused(pod, ran, lifecycle.PodAdmitResult{Reason: "OutOfcpu", Message: "no"}), false},
		"failed":  {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: ran.ContainerStatuses}, true},
	} {
		require.NoError(t, s.saved.Publish(t.Context(), status.Change{Pod: pod, New: tt.status}))
		require.NoError(t, s.saved.Load(t.Context()))
		_, counts := s.saidBefore(pod.UID)
		require.Equal(t, tt.counts, counts, name)
	}
}
