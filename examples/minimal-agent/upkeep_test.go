package main

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestThresholdsAreTheKubeletsUnlessSaidOtherwise(t *testing.T) {
	o, err := parseOptions([]string{"--node-name", "n"}, io.Discard)
	require.NoError(t, err)
	var texts []string
	for _, th := range o.policies.Eviction.Thresholds {
		texts = append(texts, string(th.Signal)+" "+th.Value.String())
	}
	require.Equal(t, []string{
		"memory.available 100Mi", "nodefs.available 10%", "nodefs.inodesFree 5%",
		"imagefs.available 15%", "imagefs.inodesFree 5%", "allocatableMemory.available 100Mi",
	}, texts)

	o, err = parseOptions([]string{"--node-name", "n", "--eviction-hard", ""}, io.Discard)
	require.NoError(t, err)
	require.Empty(t, o.policies.Eviction.Thresholds)

	_, err = parseOptions([]string{"--node-name", "n", "--eviction-hard", "nodefs.available<10"}, io.Discard)
	require.NoError(t, err)
	for args, want := range map[[2]string]string{
		{"--eviction-hard", "nodefs.available=10%"}:   "malformed pair",
		{"--eviction-hard", "nodefs.free<10%"}:        "nodefs.free",
		{"--eviction-soft", "memory.available<1Gi"}:   "memory.available",
		{"--container-log-max-size", "a lot"}:         "--container-log-max-size",
		{"--eviction-minimum-reclaim", "x<1"}:         "malformed pair",
		{"--image-gc-high-threshold", "eighty"}:       "invalid value",
		{"--eviction-pressure-transition-period", ""}: "invalid value",
	} {
		_, err := parseOptions([]string{"--node-name", "n", args[0], args[1]}, io.Discard)
		require.ErrorContains(t, err, want, args)
	}
}

func TestManifestsPodsAreLikeOthersUnlessTheirPrioritySaysSo(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{podspec.SourceAnnotation: "file", "x": "y"}}}
	require.True(t, podspec.IsCritical(pod))
	require.False(t, podspec.IsCritical(ordinary(pod)))
	require.Equal(t, map[string]string{"x": "y"}, ordinary(pod).Annotations)
	require.True(t, podspec.IsCritical(pod), "the pod itself is as it was")
	pod.Spec.Priority = new(podspec.SystemCriticalPriority)
	require.True(t, podspec.IsCritical(ordinary(pod)))
}

func TestImagesOfOthersAreKeptOverRestarts(t *testing.T) {
	store := state.Memory()
	log := slog.New(slog.DiscardHandler)
	p := newPuller(t.Context(), nil, store, log)
	require.Equal(t, imagegc.Keep, p.preference(imagegc.Image{ID: "sha256:a"}))
	p.remember(t.Context(), "sha256:a")
	p.remember(t.Context(), "host/b@sha256:b")
	for _, p := range []*puller{p, newPuller(t.Context(), nil, store, log)} {
		require.Equal(t, imagegc.Default, p.preference(imagegc.Image{ID: "sha256:a"}))
		require.Equal(t, imagegc.Default, p.preference(imagegc.Image{ID: "sha256:x", Digests: []string{"host/b@sha256:b"}}))
		require.Equal(t, imagegc.Keep, p.preference(imagegc.Image{ID: "sha256:b"}))
	}
	require.NoError(t, store.Put(t.Context(), pulledImagesKey, []byte("{")))
	require.Equal(t, imagegc.Keep, newPuller(t.Context(), nil, store, log).preference(imagegc.Image{ID: "sha256:a"}), "unknown is somebody else's")
}

// Whose an image is, is not asked a second time of the runtime.
func TestAPullAsksForTheImageOnceBefore(t *testing.T) {
	node, endpoint := serveRuntime(t)
	client, err := cri.New(cri.Config{Endpoint: endpoint})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p := newPuller(t.Context(), client, state.Memory(), slog.New(slog.DiscardHandler))
	image := &runtimeapi.ImageSpec{Image: "demo/web:1"}
	require.NoError(t, node.RemoveImage(t.Context(), image))
	answer, err := p.ImageStatus(t.Context(), image, false)
	require.NoError(t, err)
	require.Nil(t, answer.GetImage(), "not there")
	require.NoError(t, node.Fail("ImageStatus", fakecri.Fault{Err: errors.New("asked again")}))
	id, err := p.PullImage(t.Context(), image, nil, nil)
	require.NoError(t, err)
	require.Equal(t, imagegc.Default, p.preference(imagegc.Image{ID: id}), "ours")

	// Pulled Always, nobody has asked before; and it was there.
	p = newPuller(t.Context(), client, state.Memory(), slog.New(slog.DiscardHandler))
	_, err = p.PullImage(t.Context(), image, nil, nil)
	require.ErrorContains(t, err, "asked again")
	node.Heal("")
	_, err = p.PullImage(t.Context(), image, nil, nil)
	require.NoError(t, err)
	require.Equal(t, imagegc.Keep, p.preference(imagegc.Image{ID: id}), "whoever brought it")
}

func TestEmbeddedRuntimesDiskIsItsOwn(t *testing.T) {
	r := start(t, "--eviction-hard", "nodefs.available<100Pi") // no machine has as much, and the made-up one neither
	await(t, "pressure", func() bool {
		lines, _ := r.printed()
		for _, l := range lines {
			if len(l) > 13 && l[13:] == "node node1 is short: [DiskPressure]" {
				return true
			}
		}
		return false
	})
	await(t, "health", func() bool { // which asks the runtime first
		code, _ := r.get(t, "/healthz")
		return code == http.StatusOK
	})
	stats, err := fakeStats{}.Pods(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, stats)
	require.NoError(t, r.stop())
}

var _ eviction.Killer = killer{}
