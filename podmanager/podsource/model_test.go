package podsource_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

// model is a simple model of the directory: the last valid pod of each file, and whether the
// file is invalid now.
type model map[string]modelFile

type modelFile struct {
	pod string // "name image", empty if the file was never valid
	bad bool
}

// pods returns the pods. If two files define a pod with the same name, it returns the pod
// of the first file.
func (m model) pods() map[string]bool {
	names, pods := map[string]bool{}, map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(m)) {
		var name, image string
		if _, err := fmt.Sscan(m[file].pod, &name, &image); err != nil || names[name] {
			continue
		}
		names[name], pods[m[file].pod] = true, true
	}
	return pods
}

func (m model) problems() (n int) {
	good, names := 0, map[string]bool{}
	for _, f := range m {
		if f.bad {
			n++
		}
		var name string
		if _, err := fmt.Sscan(f.pod, &name); err == nil {
			good++
			names[name] = true
		}
	}
	return n + good - len(names)
}

// For any changes of a file between two passes, the pods are those of the model, and the
// reported problems are the current problems.
func TestDirectory_AgreesWithTheModel(t *testing.T) {
	t.Parallel()
	for run := range 100 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("run %d seed %d", run, seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			b, want := newBed(t), model{}
			for step := range 60 {
				randomOp(b, rnd, want, step)
				b.clock.Step(time.Duration(rnd.IntN(3)) * time.Second)
				requireAgrees(t, b, want)
			}
		})
	}
}

func randomOp(b *bed, rnd *rand.Rand, m model, step int) {
	b.t.Helper()
	file := fmt.Sprintf("f%d.yaml", rnd.IntN(4))
	path := filepath.Join(b.path, file)
	name := fmt.Sprintf("p%d", rnd.IntN(3))
	// Each version of a file has a different length, because the fake clock is ahead of the
	// clock of the file system.
	image := "i:" + strings.Repeat("x", step+1)
	switch rnd.IntN(6) {
	case 0: // removed
		_ = os.Remove(path)
		delete(m, file)
	case 1: // spoiled
		b.write(file, "spoiled: true # "+image)
		m[file] = modelFile{pod: m[file].pod, bad: true}
	case 2: // moved over another file
		to := fmt.Sprintf("f%d.yaml", rnd.IntN(4))
		if f, ok := m[file]; ok && to != file && !f.bad {
			require.NoError(b.t, os.Rename(path, filepath.Join(b.path, to)))
			delete(m, file)
			m[to] = f
		}
	case 3: // replaced by rename
		b.write(".tmp", yamlOf(name, image))
		require.NoError(b.t, os.Rename(filepath.Join(b.path, ".tmp"), path))
		m[file] = modelFile{pod: name + "-node1 " + image}
	default: // written in place
		b.write(file, yamlOf(name, image))
		m[file] = modelFile{pod: name + "-node1 " + image}
	}
}

func requireAgrees(t *testing.T, b *bed, want model) {
	t.Helper()
	res := b.load()
	got := map[string]bool{}
	for _, pod := range res.Pods {
		got[pod.Name+" "+pod.Spec.Containers[0].Image] = true
	}
	require.Equal(t, want.pods(), got)
	require.Len(t, res.Problems, want.problems())

	standing := map[string]bool{}
	for _, line := range b.told {
		if text := line[2:]; line[0] == '+' {
			require.False(t, standing[text], "problem reported twice: %s", text)
			standing[text] = true
		} else {
			require.True(t, standing[text], "problem resolved before it was reported: %s", text)
			delete(standing, text)
		}
	}
	require.Len(t, standing, len(res.Problems))
	for _, p := range res.Problems {
		require.True(t, standing[b.short(p)])
	}
}

func TestDirectory_ConcurrentLoadsAndReads(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	d, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: path, NodeName: "n"})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() {
			file := filepath.Join(path, fmt.Sprintf("f%d.yaml", worker))
			for i := range 50 {
				if err := os.WriteFile(file, []byte(yamlOf(fmt.Sprintf("p%d", worker), fmt.Sprintf("i:%d", i))), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				res, err := d.Load(t.Context())
				if err != nil {
					t.Error(err)
				}
				for _, pod := range res.Pods {
					if pod.Status.Phase != corev1.PodPending {
						t.Error("an incomplete pod was delivered")
					}
				}
				d.Problems()
			}
		})
	}
	wg.Wait()
	res, err := d.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, res.Pods, 3)
	require.Empty(t, res.Problems)
}
