//go:build chaos

package clusterbed_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPIServer_KilledTwentyTimes(t *testing.T) {
	inChaos(t)
	h, rnd := follow(t, nil), random()
	apply(t, deployment("web", 4))
	awaitRollOut(t, "web")
	for i := range 20 {
		rollOut(t, "web", i)
		pause(upTo(rnd, 3*time.Second))
		require.NoError(t, killAPIServer())
		require.NoError(t, upAgain())
	}
	awaitRollOut(t, "web")
	h.check(t)
}

// The network drops all packets between the agent and the API server for 90 s, longer than the grace
// period of the node's lease. Meanwhile a container restarts, a pod ends and a pod is deleted.
func TestAPIServer_UnreachableForNinetySeconds(t *testing.T) {
	inChaos(t)
	throughProxy(t)
	h, shared := follow(t, map[string]int32{"crashing": 3}), t.TempDir()
	apply(t, shell("steady", "sleep 100000"))
	apply(t, shell("deleted", "sleep 100000"))
	apply(t, once("ends", shared, 0))
	apply(t, crashing("crashing"))
	for _, name := range []string{"steady", "deleted", "ends"} {
		awaitField(t, "pod/"+name, ".status.phase", "Running")
	}

	drop := func(action string) {
		for _, port := range []string{"--dport", "--sport"} {
			require.NoError(t, script(bed.env["RUN_INSIDE"], "iptables", "-w", action, "INPUT", "-p", "tcp", port, proxyPort, "-j", "DROP"))
		}
	}
	drop("-I")
	deliver := sync.OnceFunc(func() { drop("-D") })
	defer deliver()
	over := time.After(90 * time.Second)
	run(t, "delete", "pod", "deleted", "--wait=false")
	end(t, "ends", shared)
	h.awaitRestart(t, "crashing")
	await(t, "the pod ends", func() bool { return !h.running("ends") })
	awaitField(t, "node/"+bed.env["NODE_NAME"], readyStatus, "Unknown")
	awaitField(t, "pod/steady", `.status.conditions[?(@.type=="Ready")].status`, "False")
	<-over
	require.True(t, h.running("deleted"), "the agent can't know about the deletion")
	require.True(t, h.running("steady"))

	deliver()
	awaitField(t, "node/"+bed.env["NODE_NAME"], readyStatus, "True")
	awaitField(t, "pod/ends", ".status.phase", "Succeeded")
	awaitField(t, "pod/steady", `.status.conditions[?(@.type=="Ready")].status`, "True")
	awaitGone(t, "pod/deleted")
	awaitField(t, "node/"+bed.env["NODE_NAME"], ".spec.taints", "")
	h.check(t)
}

// The watches of the agent end. When it watches again, the versions that it knows have been removed by
// a compaction, so the API server answers 410 Gone.
func TestAPIServer_CompactedWhileTheAgentIsAway(t *testing.T) {
	inChaos(t)
	p := throughProxy(t)
	h := follow(t, nil)
	apply(t, shell("steady", "sleep 100000"))
	apply(t, shell("deleted", "sleep 100000"))
	for _, name := range []string{"steady", "deleted"} {
		awaitField(t, "pod/"+name, ".status.phase", "Running")
	}

	mark, hold := logMark(t), make(chan struct{})
	p.set(faults{hold: hold})
	p.endWatches()
	run(t, "delete", "pod", "deleted", "--wait=false")
	apply(t, shell("created", "sleep 100000"))
	awaitField(t, "pod/created", ".spec.nodeName", bed.env["NODE_NAME"])
	compact(t)
	require.NoError(t, killAPIServer()) // its cache has older versions than etcd
	require.NoError(t, upAgain())
	close(hold)
	p.set(faults{})
	awaitGone(t, "pod/deleted")
	awaitField(t, "pod/created", ".status.phase", "Running")
	require.Positive(t, loggedSince(t, mark, "too old resource version"), "the API server has not answered 410")
	h.check(t)
}

// etcdctl runs etcdctl and returns its output.
func etcdctl(t *testing.T, words ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), bed.env["RUN_INSIDE"], append([]string{"env", "ETCDCTL_API=3", "etcdctl"}, words...)...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// compact removes all versions but the current one from etcd.
func compact(t *testing.T) {
	t.Helper()
	_, after, found := strings.Cut(etcdctl(t, "get", "no-such-key", "-w", "json"), `"revision":`)
	require.True(t, found)
	revision, _, _ := strings.Cut(after, ",")
	etcdctl(t, "compact", "--physical", revision)
}

// etcd is restored from an older snapshot, so the versions of all objects go back. A pod that has ended
// since then is running again at the API server, a deleted pod exists again, and a new pod is gone.
func TestAPIServer_RestoredFromAnOlderSnapshot(t *testing.T) {
	inChaos(t)
	dir := bed.env["KPCLUSTER_DIR"]
	h, shared := follow(t, nil), t.TempDir()
	apply(t, shell("steady", "sleep 100000"))
	apply(t, shell("deleted", "sleep 100000"))
	apply(t, once("ends", shared, 0))
	for _, name := range []string{"steady", "deleted", "ends"} {
		awaitField(t, "pod/"+name, ".status.phase", "Running")
	}
	h.awaitStatuses(t)
	snapshot := filepath.Join(dir, "snapshot.db")
	require.NoError(t, os.RemoveAll(snapshot))
	etcdctl(t, "snapshot", "save", snapshot)

	end(t, "ends", shared)
	awaitField(t, "pod/ends", ".status.phase", "Succeeded")
	run(t, "delete", "pod", "deleted", "--timeout=60s")
	apply(t, shell("created", "sleep 100000"))
	awaitField(t, "pod/created", ".status.phase", "Running")
	for i := range 20 {
		run(t, "annotate", "pod/steady", "--overwrite", fmt.Sprintf("round=%d", i))
	}
	mark := logMark(t)
	for _, name := range []string{"apiserver", "controllers", "scheduler", "etcd"} {
		require.NoError(t, killDaemon(name))
	}
	// If the API server came back sooner, the agent could continue its watch from a version that does not
	// exist yet, and the API server would send no event until that version. The kubelet has this
	// problem too.
	await(t, "the watch of the pods fails", func() bool { return loggedSince(t, mark, `will retry" type=*v1.Pod`) > 0 })
	h.forget()
	h.letOthersDelete() // the pod created is gone, and only then its container
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "etcd")))
	etcdctl(t, "snapshot", "restore", snapshot, "--data-dir", filepath.Join(dir, "etcd"))
	require.NoError(t, upAgain())

	awaitField(t, "pod/ends", ".status.phase", "Succeeded")
	await(t, "the pod that is gone is stopped", func() bool { return !h.running("created") })
	await(t, "the pod that exists again runs", func() bool { return h.running("deleted") })
	require.Len(t, h.of("steady"), 1)
	require.NoError(t, awaitNode())
	h.check(t)
}

// Each request takes five seconds, one request of a hundred fails, and each event of a watch arrives a
// minute late.
func TestAPIServer_SlowAndUnreliable(t *testing.T) {
	inChaos(t)
	p := throughProxy(t)
	h, shared := follow(t, nil), t.TempDir()
	p.set(faults{latency: 5 * time.Second, errorEvery: 100, eventDelay: time.Minute})
	since := nodeField(t, `.status.conditions[?(@.type=="Ready")].lastTransitionTime`)
	apply(t, deployment("web", 2))
	apply(t, once("ends", shared, 0))
	end(t, "ends", shared)
	limit := 6 * time.Minute
	awaitPhase := func(name, phase string) {
		awaitWithin(t, limit, name+" is "+phase, func() bool {
			out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "pod", name, "-o", "jsonpath={.status.phase}")
			return err == nil && out == phase
		})
	}
	run(t, "rollout", "status", "deployment/web", "--timeout=360s")
	awaitPhase("ends", "Succeeded")
	run(t, "delete", "deployment/web")
	awaitWithin(t, limit, "the pods of the Deployment are gone", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "pods", "-l", "app=web", "-o", "name")
		return err == nil && out == ""
	})
	require.Equal(t, since, nodeField(t, `.status.conditions[?(@.type=="Ready")].lastTransitionTime`), "the node was always ready")
	requests, refused := p.set(faults{})
	t.Logf("%d requests, %d of them failed", requests, refused)
	require.Positive(t, refused)
	h.check(t)
}

func TestAPIServer_RefusesStatuses(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inChaos(t)
			p := throughProxy(t)
			exits := map[string]int{"ends0": 0, "ends1": 1, "ends2": 2, "ends3": 3, "ends4": 4} // exit codes
			h, shared := follow(t, nil), t.TempDir()
			for name, exitCode := range exits {
				apply(t, once(name, shared, exitCode))
			}
			apply(t, shell("deleted", "sleep 100000"))
			for name := range exits {
				awaitField(t, "pod/"+name, ".status.phase", "Running")
			}
			awaitField(t, "pod/deleted", ".status.phase", "Running")
			p.set(faults{refuse: func(q *http.Request) int {
				if q.Method == http.MethodPatch && strings.Contains(q.URL.Path, "/pods/") && strings.HasSuffix(q.URL.Path, "/status") {
					return code
				}
				return 0
			}})
			for name := range exits {
				end(t, name, shared)
			}
			run(t, "delete", "pod", "deleted", "--wait=false")
			for name := range exits {
				await(t, name+" ends", func() bool { return !h.running(name) })
			}
			await(t, "the deleted pod ends", func() bool { return !h.running("deleted") })
			pause(30 * time.Second) // the fault lasts longer than the retries of a request
			for name := range exits {
				awaitField(t, "pod/"+name, ".status.phase", "Running")
			}
			awaitField(t, "pod/deleted", ".status.phase", "Running")
			_, refused := p.set(faults{})
			t.Logf("%d statuses were refused", refused)
			require.GreaterOrEqual(t, refused, 6)
			for name, exitCode := range exits {
				want := "Failed"
				if exitCode == 0 {
					want = "Succeeded"
				}
				awaitField(t, "pod/"+name, ".status.phase", want)
				awaitField(t, "pod/"+name, ".status.containerStatuses[0].state.terminated.exitCode", fmt.Sprint(exitCode))
			}
			awaitGone(t, "pod/deleted")
			h.check(t)
		})
	}
}
