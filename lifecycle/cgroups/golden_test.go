package cgroups_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
)

// TestTree runs the commands in testdata/tree on a model of mounted cgroups.
// The commands are
//
//	node v1|v2                    a new node
//	ensure|update UID             a pod. Each line "container NAME" adds a container;
//	                              "limits cpu 1, memory 1Gi" and "requests cpu 1"
//	                              belong to the container above
//	remove UID
//	qos                           UpdateQoS with the pods that were ensured
//
// The output of each command is all files below kubepods. After a deliberate
// change: go test ./lifecycle/cgroups -run TestTree -rewrite
func TestTree(t *testing.T) {
	datadriven.Walk(t, "testdata/tree", func(t *testing.T, file string) {
		t.Helper()
		var root string
		var c *cgroups.Cgroupfs
		pods := map[string]*corev1.Pod{}
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			var err error
			switch d.Cmd {
			case "node":
				version := cgroups.V1
				if d.CmdArgs[0].Key == "v2" {
					version = cgroups.V2
				}
				root = model(t, version)
				c = newOn(t, cgroups.Config{Root: root, PidsPerPod: 512, HugePageSizes: []int64{2 << 20}, Allocatable: func() corev1.ResourceList { return list("cpu 4", "memory 8Gi") }})
				return "ok"
			case "ensure":
				pod := podOf(d)
				pods[string(pod.UID)] = pod
				var parent string
				if parent, err = c.Ensure(t.Context(), pod, period); err == nil {
					return "parent " + parent + "\n" + shownTree(t, root)
				}
			case "update":
				pod := podOf(d)
				pods[string(pod.UID)] = pod
				err = c.Update(t.Context(), pod, period)
			case "remove":
				delete(pods, d.CmdArgs[0].Key)
				err = c.Remove(t.Context(), types.UID(d.CmdArgs[0].Key))
			case "qos":
				var all []*corev1.Pod
				for _, pod := range pods {
					all = append(all, pod)
				}
				err = c.UpdateQoS(t.Context(), all)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			if err != nil {
				return "error: " + strings.ReplaceAll(err.Error(), root, "")
			}
			return shownTree(t, root)
		})
	})
}

func podOf(d *datadriven.TestData) *corev1.Pod {
	pod := podWith(d.CmdArgs[0].Key)
	for line := range strings.Lines(d.Input) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "container" {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: rest})
			continue
		}
		r := &pod.Spec.Containers[len(pod.Spec.Containers)-1].Resources
		amounts := list(strings.Split(rest, ", ")...)
		switch kind {
		case "limits":
			r.Limits = amounts
		case "requests":
			r.Requests = amounts
		}
	}
	return pod
}

// shownTree shows every file below kubepods, in each hierarchy.
func shownTree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if err != nil || !strings.Contains(name, "kubepods") || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		if d.IsDir() {
			fmt.Fprintf(&b, "%s/\n", name)
			return nil
		}
		fmt.Fprintf(&b, "%s = %s\n", name, content(t, path))
		return nil
	}))
	return b.String()
}

// The test creates, updates and removes random pods, and removes cgroups at
// random. The cgroups must match the last requests, and nothing may be left of
// removed pods.
func TestCgroupfs_PodsInAnyOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		version := cgroups.Version(1 + rng.IntN(2))
		root := model(t, version)
		c := newOn(t, cgroups.Config{Root: root})
		want := map[string]*corev1.Pod{}
		for range 30 {
			uid := fmt.Sprintf("u%d", rng.IntN(5))
			make := []func(string) *corev1.Pod{guaranteed, burstable, bestEffort}[uid[1]%3] // a pod's class never changes
			switch rng.IntN(5) {
			case 0, 1:
				want[uid] = make(uid)
				_, err := c.Ensure(t.Context(), want[uid], period)
				require.NoError(t, err, "seed %d", seed)
			case 2:
				delete(want, uid)
				require.NoError(t, c.Remove(t.Context(), types.UID(uid)), "seed %d", seed)
			case 3:
				require.NoError(t, c.UpdateQoS(t.Context(), nil), "seed %d", seed)
			case 4:
				if pod := want[uid]; pod != nil { // another program removes the cgroup
					require.NoError(t, os.RemoveAll(filepath.Join(root, memory(version), cgroups.PodName(pod).Cgroupfs())))
					delete(want, uid)
					require.NoError(t, c.Remove(t.Context(), pod.UID), "seed %d", seed)
				}
			}
		}
		require.Equal(t, len(want), countPods(t, filepath.Join(root, memory(version))), "seed %d", seed)
		for uid := range want {
			require.NoError(t, c.Remove(t.Context(), types.UID(uid)), "seed %d", seed)
		}
		require.Zero(t, countPods(t, root), "seed %d", seed)
	}
}

func memory(v cgroups.Version) string {
	if v == cgroups.V1 {
		return "memory"
	}
	return ""
}

func countPods(t *testing.T, root string) (n int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if _, ok := cgroups.UIDOf(d.Name()); ok && d.IsDir() {
			n++
		}
		return err
	}))
	return n
}
