package main

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// stateFiles returns the files of persistent state below root, except those of pods.
func stateFiles(t *testing.T, root string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "logs" || entry.Name() == "pods"):
			return fs.SkipDir
		case !entry.Type().IsRegular() || entry.Name() == "lock":
			return nil
		}
		files[path], err = os.ReadFile(path)
		return err
	}))
	return files
}

// corruptions returns damaged versions of a file, by name.
func corruptions(before []byte) map[string][]byte {
	noise := make([]byte, len(before))
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise) // never fails
	all := map[string][]byte{
		"empty": {}, "half": before[:len(before)/2], "one byte less": before[:len(before)-1],
		"zeros": make([]byte, len(before)), "noise": noise, "twice": slices.Concat(before, before),
		"zeros at the end": slices.Concat(before[:len(before)/2], make([]byte, len(before)/2)),
		"deep":             []byte(strings.Repeat("[", 100_000)),
	}
	for _, text := range []string{
		"null", "7", `"text"`, "[]", "{}", "[null]", "[7]", `{"version":2}`, `{"version":1}`, `{"version":1,"data":null}`, `{"version":1,"data":7}`,
		`{"version":1,"data":[7]}`, `{"version":1,"data":[null]}`, `{"version":1,"data":{"a":[]}}`, `{"version":1,"images":null}`, `{"version":1,"images":{"a":7}}`,
		`{"apiVersion":"v1","kind":"Pod"}`, `{"apiVersion":"v1","kind":"Pod","metadata":7,"status":[]}`, `{"kind":"ImagePulledRecord","credentialMapping":{"a":null}}`,
	} {
		all[text] = []byte(text)
	}
	return all
}

// TestStateFiles_DamageDoesNotAffectPods starts the agent with damaged files: with each single file damaged,
// and with each kind of damage in all files. Running pods must keep running, completed pods
// must not start again, and the other files must not change.
func TestStateFiles_DamageDoesNotAffectPods(t *testing.T) {
	t.Parallel()
	cfg := machine.DemoNode()
	cfg.Images, cfg.Registry = nil, cfg.Images // the agent pulls the images, and records that
	node, err := fakecri.New(cfg)
	require.NoError(t, err)
	endpoint := serveNode(t, node)
	dir, root := t.TempDir(), t.TempDir()
	manifest(t, dir, "web.yaml", podYAML("web", "demo/web:1"))
	manifest(t, dir, "job.yaml", podYAML("job", "demo/job:1", "  restartPolicy: Never\n"))
	manifest(t, dir, "flaky.yaml", podYAML("flaky", "demo/flaky:1"))
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	settled := func(a *running) {
		await(t, "web runs, job has ended and flaky has run", func() bool {
			return a.phase(t, "web") == corev1.PodRunning && a.phase(t, "job") == corev1.PodSucceeded && a.phase(t, "flaky") == corev1.PodRunning
		})
	}
	containers := func() (ids []string) {
		all, err := node.ListContainers(t.Context(), nil)
		require.NoError(t, err)
		for _, c := range all {
			if name := c.GetLabels()["io.kubernetes.pod.name"]; name != "flaky-node1" {
				ids = append(ids, name+" "+c.GetId()+" "+c.GetState().String())
			}
		}
		slices.Sort(ids)
		return ids
	}
	first := start(t, args...)
	await(t, "flaky is in CrashLoopBackOff", func() bool { return podOf(first.status(t), "flaky").State == "CrashLoopBackOff" })
	settled(first)
	require.NoError(t, first.stop())
	before, ran := stateFiles(t, root), containers()
	require.Len(t, ran, 2)
	require.Contains(t, ran[1], runtimeapi.ContainerState_CONTAINER_RUNNING.String())
	backoff, pulled := filepath.Join(root, "backoff.json"), filepath.Join(root, "images-pulled.json")
	require.Subset(t, slices.Collect(maps.Keys(before)), []string{backoff, pulled, filepath.Join(root, "images-seen.json")})
	require.GreaterOrEqual(t, len(before), 8)

	survives := func(what string, damaged map[string][]byte) {
		for file, data := range before {
			if other, ok := damaged[file]; ok {
				data = other
			}
			require.NoError(t, os.WriteFile(file, data, 0o600))
		}
		a := start(t, args...)
		settled(a)
		require.NoError(t, a.stop(), what)
		require.Equal(t, ran, containers(), what)
		if damaged[backoff] == nil {
			var states []lifecycle.BackoffState
			require.NoError(t, state.Load(t.Context(), state.Files(root), "backoff.json", &states), what)
			require.NotEmpty(t, states, what)
		}
		if damaged[pulled] == nil {
			var images map[string]bool
			require.NoError(t, state.Load(t.Context(), state.Files(root), "images-pulled.json", &images), what)
			require.Len(t, images, 3, what)
		}
	}
	for file, data := range before {
		survives(file, map[string][]byte{file: corruptions(data)["noise"]})
	}
	for kind := range corruptions([]byte("{}")) {
		all := map[string][]byte{}
		for file, data := range before {
			all[file] = corruptions(data)[kind]
		}
		survives(kind, all)
	}
}
