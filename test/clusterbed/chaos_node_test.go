//go:build chaos

package clusterbed_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The node is deleted, and an administrator creates it again. Then the node is deleted a second time.
// The control plane deletes its pods. After that, the agent restarts, and creates the node.
func TestNode_DeletedAndCreatedAgain(t *testing.T) {
	inChaos(t)
	name := bed.env["NODE_NAME"]
	h := follow(t, nil)
	apply(t, deployment("web", 2))
	awaitRollOut(t, "web")
	apply(t, shell("steady", "sleep 100000"))
	awaitField(t, "pod/steady", ".status.phase", "Running")

	run(t, "delete", "node", name)
	apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
	require.NoError(t, awaitNode())
	uid := nodeField(t, ".metadata.uid")
	await(t, "the lease belongs to the new node", func() bool {
		out, err := kubectl(t.Context(), "", "-n", "kube-node-lease", "get", "lease", name, "-o", "jsonpath={.metadata.ownerReferences[0].uid}")
		return err == nil && out == uid
	})
	awaitField(t, "node/"+name, ".metadata.labels.kubernetes\\.io/os", "linux")
	awaitField(t, "node/"+name, ".spec.taints", "")
	apply(t, shell("created", "sleep 100000"))
	awaitField(t, "pod/created", ".status.phase", "Running")
	h.check(t)

	after := follow(t, nil)
	after.letOthersDelete()
	await(t, "the pods are recorded", func() bool { return after.running("steady") && after.running("created") })
	run(t, "delete", "node", name)
	awaitWithin(t, 3*time.Minute, "the control plane deletes the pods of the node", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
		return err == nil && out == ""
	})
	await(t, "the agent stops the pods that are gone", func() bool { return !after.running("steady") && !after.running("created") })
	killAgent()
	require.NoError(t, startAgent(credentials()...))
	require.NoError(t, awaitNode())
	awaitRollOut(t, "web")
	after.check(t)
}

func TestAgent_KilledFiftyTimes(t *testing.T) {
	inChaos(t)
	h, rnd := follow(t, nil), random()
	apply(t, deployment("web", 4))
	awaitRollOut(t, "web")
	for i := range 50 {
		if i%5 == 0 {
			rollOut(t, "web", i)
		}
		pause(upTo(rnd, 6*time.Second))
		killAgent()
		require.NoError(t, startAgent(credentials()...))
	}
	awaitRollOut(t, "web")
	h.check(t)
}

// A second agent with its own container runtime has the name of the first. Each runs the pods of the
// node in its runtime.
func TestAgent_TwoWithOneName(t *testing.T) {
	inChaos(t)
	dir := bed.env["KPCLUSTER_DIR"]
	h := follow(t, nil)
	apply(t, deployment("web", 2))
	awaitRollOut(t, "web")
	apply(t, shell("steady", "sleep 100000"))
	awaitField(t, "pod/steady", ".status.phase", "Running")
	id := run(t, "get", "pod/steady", "-o", "jsonpath={.status.containerStatuses[0].containerID}")

	second := filepath.Join(dir, "cri2")
	t.Cleanup(func() { require.NoError(t, script(bed.env["RUN_INSIDE"], "../testbed/cri-down.sh", second)) })
	require.NoError(t, script(bed.env["RUN_INSIDE"], "../testbed/cri-up.sh", "--dir", second, "--bridge", "kpc1", "--cidr", "10.90.0.0/16"))
	socket := filepath.Join(second, "containerd.sock")
	h.followSecond(t, socket)
	config, err := os.ReadFile(filepath.Join(dir, "kubelet.yaml"))
	require.NoError(t, err)
	text := strings.NewReplacer(bed.env["CRI_SOCKET"], socket, "cgroupRoot: /"+bed.env["KPCLUSTER_NETNS"], "cgroupRoot: /"+bed.env["KPCLUSTER_NETNS"]+"2",
		dir+"/manifests", dir+"/manifests2", dir+"/logs", dir+"/logs2").Replace(string(config)) + "port: 10251\nhealthzPort: 0\n"
	file := filepath.Join(dir, "second.yaml")
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Join(dir, "manifests2"), 0o700), os.WriteFile(file, []byte(text), 0o600)))
	first, firstEnded, mark := bed.agent, bed.ended, logMark(t)
	require.NoError(t, startAgent(append(credentials(), "--config", file, "--root-dir", filepath.Join(dir, "root2"))...))
	onSecond := func() (n int) {
		for _, c := range h.all() {
			if c.runtime == socket && !c.started.IsZero() && c.finished.IsZero() {
				n++
			}
		}
		return n
	}
	await(t, "the second agent also runs the pods", func() bool { return onSecond() == 3 })
	pause(30 * time.Second) // both agents report statuses
	require.Equal(t, 3, onSecond())
	require.Equal(t, "Running Running Running", run(t, "get", "pods", "-o", "jsonpath={.items[*].status.phase}"))
	require.Positive(t, loggedSince(t, mark, "could not renew the lease of the node"), "the log shows that another client also renews it")

	killAgent()
	bed.agent, bed.ended = first, firstEnded
	run(t, "label", "pod/steady", "round=2")
	await(t, "the status is that of the first agent", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "pod/steady", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
		return err == nil && out == id
	})
	require.True(t, h.running("steady"))
	h.check(t)
}

// containerd is killed five times while a Deployment rolls.
func TestRuntime_Killed(t *testing.T) {
	inChaos(t)
	h, rnd := follow(t, nil), random()
	apply(t, deployment("web", 4))
	awaitRollOut(t, "web")
	apply(t, shell("steady", "sleep 100000"))
	awaitField(t, "pod/steady", ".status.phase", "Running")
	for i := range 5 {
		rollOut(t, "web", i)
		pause(upTo(rnd, 4*time.Second))
		require.NoError(t, killProcess(filepath.Join(bed.env["KPCLUSTER_DIR"], "cri", "containerd.pid")))
		pause(upTo(rnd, 4*time.Second))
		require.NoError(t, upAgain())
		awaitRollOut(t, "web")
	}
	require.NoError(t, awaitNode())
	require.Equal(t, "ok\n", run(t, "exec", "steady", "--", "echo", "ok"))
	h.check(t)
}

// The disk with the agent's root folder is full, the agent is killed and starts again, and then the
// disk is freed.
func TestAgent_FullDisk(t *testing.T) {
	inChaos(t)
	dir := bed.env["KPCLUSTER_DIR"]
	root := filepath.Join(dir, "small")
	require.NoError(t, os.MkdirAll(root, 0o755))
	require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	config, err := os.ReadFile(filepath.Join(dir, "kubelet.yaml"))
	require.NoError(t, err)
	// Without these thresholds, the agent does not evict the pods.
	text := strings.NewReplacer("nodefs.available: 1%", "nodefs.available: 0%", "nodefs.inodesFree: 1%", "nodefs.inodesFree: 0%").Replace(string(config))
	file := filepath.Join(dir, "small.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	flags := append(credentials(), "--config", file, "--root-dir", root)
	restart(t, flags...)

	h, shared := follow(t, map[string]int32{"crashing": 3}), t.TempDir()
	apply(t, shell("steady", "sleep 100000"))
	apply(t, shell("deleted", "sleep 100000"))
	apply(t, once("ends", shared, 0))
	apply(t, crashing("crashing"))
	for _, name := range []string{"steady", "deleted", "ends"} {
		awaitField(t, "pod/"+name, ".status.phase", "Running")
	}
	filler := filepath.Join(root, "filler")
	fill(t, filler)
	end(t, "ends", shared)
	awaitField(t, "pod/ends", ".status.phase", "Succeeded")
	run(t, "delete", "pod", "deleted", "--timeout=60s")
	h.awaitRestart(t, "crashing")
	apply(t, shell("late", "sleep 100000"))
	await(t, "an event names the cause", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "events", "-o", "jsonpath={.items[*].message}")
		return err == nil && strings.Contains(out, "no space left on device")
	})
	killAgent()
	require.NoError(t, startAgent(flags...))
	require.NoError(t, awaitNode())
	h.awaitRestart(t, "crashing")
	require.True(t, h.running("steady"))

	require.NoError(t, os.Remove(filler))
	awaitWithin(t, 3*time.Minute, "the pod that waited for space runs", func() bool { return h.running("late") })
	awaitField(t, "pod/late", ".status.phase", "Running")
	killAgent()
	require.NoError(t, startAgent(flags...))
	require.NoError(t, awaitNode())
	h.check(t)
}

// fill writes a file until its disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			size /= 2
		}
	}
}
