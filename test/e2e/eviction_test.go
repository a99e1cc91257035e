//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const (
	mebi = 1 << 20
	// fillText writes %d MiB to a container's log and then sleeps.
	fillText = `dd if=/dev/zero bs=1M count=%d 2>/dev/null | tr "\\0" x | fold -w 1000; exec sleep 1000`
)

// shellPod returns a pod of busybox that runs a script.
func shellPod(name, script, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: kubeparts.test/busybox:1
    command: [sh, -c, %q]
%s`, name, script, more)
}

func evicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}

func TestEviction_EvictsOnlyPodFillingDiskWithLogs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mountMemory(t, n.root, 96)
	t.Cleanup(n.leave)
	n.write("calm.yaml", shellPod("calm", "echo here; exec sleep 1000", ""))
	n.start("--eviction-hard", "nodefs.available<50%", "--container-log-max-size=-1", "--eviction-pressure-transition-period", "3s")
	n.waitRunning("calm")
	n.write("filler.yaml", shellPod("filler", fmt.Sprintf(fillText, 80), ""))
	full := n.waitPod(startTimeout, "filler", "to be evicted", evicted)
	t.Log(full.Status.Message)
	require.Contains(t, full.Status.Message, "The node was low on resource: ephemeral-storage. Threshold quantity: 48Mi, available: ")
	require.Equal(t, corev1.ConditionTrue, conditionStatus(full, corev1.DisruptionTarget))
	waitFor(t, startTimeout, "the logs of the evicted pod to be removed", func() (string, bool) {
		u := usedBytes(t, n.root)
		return fmt.Sprint(u), u < 10*mebi
	})
	waitFor(t, startTimeout, "the eviction to be over", func() (string, bool) {
		return "", n.output.linesWith("evicted a pod") == 1
	})
	stays(t, 5*time.Second, "the neighbour runs, and no other pod is evicted", func() (string, bool) {
		pods, err := n.agent.pods()
		return fmt.Sprint(describe(pods), err), err == nil && n.output.linesWith("evicted a pod") == 1
	})
	calm := n.waitRunning("calm")
	waitFor(t, startTimeout, "the end of the pressure", func() (string, bool) {
		return "", n.output.linesWith("is no longer under pressure") > 0
	})

	// An agent that starts under pressure must not reject pods that are already running.
	n.agent.stop(t) // otherwise it would evict because of the following writes
	require.NoError(t, os.WriteFile(n.root+"/ballast", make([]byte, 70*mebi), 0o600))
	before := bed.instances(t, podLabels(calm))
	n.remove("filler.yaml")
	n.start("--eviction-hard", "nodefs.available<5%,nodefs.inodesFree<1%", "--eviction-soft", "nodefs.available<50%", "--eviction-soft-grace-period", "nodefs.available=1h")
	calm = n.waitRunning("calm")
	require.Equal(t, before, bed.instances(t, podLabels(calm)))
	waitFor(t, startTimeout, "the agent to report the pressure", func() (string, bool) {
		return "", n.output.linesWith("is under pressure: [DiskPressure]") > 1
	})
	n.write("late.yaml", shellPod("late", "exec sleep 1000", ""))
	late := n.waitPod(startTimeout, "late", "to be refused", evicted)
	require.Equal(t, "Pod was rejected: The node had condition: [DiskPressure]. ", late.Status.Message)
}

// TestEviction_ContinuesAfterAgentIsKilled kills the agent after it has evicted a pod that
// ignores SIGTERM, before the grace period of the pod has ended.
func TestEviction_ContinuesAfterAgentIsKilled(t *testing.T) {
	t.Parallel()
	const grace = 15
	n := newNode(t)
	mountMemory(t, n.root, 96)
	t.Cleanup(n.leave)
	flags := []string{
		"--eviction-hard=", "--eviction-soft", "nodefs.available<50%", "--eviction-soft-grace-period", "nodefs.available=1s",
		"--eviction-max-pod-grace-period", strconv.Itoa(grace), "--container-log-max-size=-1",
	}
	n.write("calm.yaml", shellPod("calm", "exec sleep 1000", ""))
	n.start(flags...)
	calm := n.waitRunning("calm")
	before := bed.instances(t, podLabels(calm))
	script := "trap '' TERM; dd if=/dev/zero bs=1M count=60 2>/dev/null | tr '\\000' x | fold -w 1000; while :; do sleep 1; done"
	n.write("filler.yaml", strings.ReplaceAll(shellPod("filler", script, ""), "PeriodSeconds: 1", "PeriodSeconds: 60"))
	filler := n.waitPod(startTimeout, "filler", "to have the reason Evicted or the condition DisruptionTarget", func(p *corev1.Pod) bool {
		return p.Status.Reason == "Evicted" || conditionStatus(p, corev1.DisruptionTarget) == corev1.ConditionTrue
	})
	waitFor(t, startTimeout, "the agent to store the eviction", func() (string, bool) {
		said := saved(filepath.Join(n.root, "statuses", string(filler.UID)+".json"))
		_, err := os.Stat(filepath.Join(n.root, "pods", string(filler.UID), "ending"))
		return fmt.Sprint(said, err), said != nil && said.Status.Message == filler.Status.Message && err == nil
	})
	begun, stalled := time.Now(), stalls(t)
	n.agent.kill(t)
	live, err := bed.find(podLabels(filler))
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(live, instance.running), "the pod must still run after the agent was killed")

	n.start(flags...)
	waitFor(t, 2*grace*time.Second, "the evicted pod's containers to exit", func() (string, bool) {
		found, err := bed.find(podLabels(filler))
		return fmt.Sprint(found, err), err == nil && !slices.ContainsFunc(found, instance.running)
	})
	took := time.Since(begun)
	t.Logf("the pod ended %v after the start of the eviction, with a grace period of %d s", took.Round(100*time.Millisecond), grace)
	require.Less(t, took-stalled(), (grace+5)*time.Second, "the pod must not get a second grace period")
	full := n.waitPod(startTimeout, "filler", "to be evicted", evicted)
	require.Equal(t, filler.Status.Message, full.Status.Message)
	stays(t, 5*time.Second, "the evicted pod does not run again, and its neighbour runs", func() (string, bool) {
		again, err := bed.find(podLabels(filler))
		now := bed.instances(t, podLabels(calm))
		return fmt.Sprint(again, now, err), err == nil && !slices.ContainsFunc(again, instance.running) && slices.Equal(now, before)
	})
}

func TestEviction_EvictsPodOverEphemeralStorageLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const limit = "    resources: {limits: {ephemeral-storage: 20Mi}}\n"
	n.write("calm.yaml", shellPod("calm", "echo here; exec sleep 1000", limit))
	n.start("--container-log-max-size=-1")
	n.waitRunning("calm")
	began := time.Now()
	n.write("logs.yaml", shellPod("logs", fmt.Sprintf(fillText, 40), limit))
	n.write("layer.yaml", shellPod("layer", "dd if=/dev/zero of=/big bs=1M count=40; exec sleep 1000", limit))
	for _, name := range []string{"logs", "layer"} {
		over := n.waitPod(time.Minute, name, "to be evicted", evicted)
		t.Logf("%s: evicted %v after its manifest was written: %s", name, time.Since(began).Round(time.Millisecond), over.Status.Message)
		require.Equal(t, "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ", over.Status.Message)
	}
	n.waitRunning("calm")
}

func TestEviction_EvictsPodOverEmptyDirLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const volume = `    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {sizeLimit: 20Mi}}]
`
	n.write("calm.yaml", shellPod("calm", "dd if=/dev/zero of=/data/some bs=1M count=10; exec sleep 1000", volume))
	n.start()
	n.waitRunning("calm")
	began := time.Now()
	n.write("full.yaml", shellPod("full", "dd if=/dev/zero of=/data/much bs=1M count=40; exec sleep 1000", volume))
	over := n.waitPod(time.Minute, "full", "to be evicted", evicted)
	t.Logf("evicted %v after its manifest was written: %s", time.Since(began).Round(time.Millisecond), over.Status.Message)
	require.Equal(t, `Usage of EmptyDir volume "data" exceeds the limit "20Mi". `, over.Status.Message)
	n.waitRunning("calm")
}

func TestEviction_EvictsPodUsingMostInodes(t *testing.T) {
	t.Parallel()
	b := newSmallBed(t, 400, "-N", "12000")
	n := newNode(t)
	n.write("calm.yaml", shellPod("calm", "exec sleep 1000", ""))
	n.start("--cri-endpoint", b.endpoint, "--eviction-hard", "imagefs.inodesFree<30%")
	n.waitRunning("calm")
	// The runtime measures every second in this test. The pod writes slowly enough for that,
	// because inodes that are not measured yet cannot be assigned to a pod.
	n.write("many.yaml", shellPod("many", `mkdir /d; i=0; while [ $i -lt 9000 ]; do : >/d/$i || break; i=$((i+1)); [ $((i%100)) != 0 ] || sleep 0.1; done; exec sleep 1000`, ""))
	full := n.waitPod(2*time.Minute, "many", "to be evicted", evicted)
	t.Log(full.Status.Message)
	require.Contains(t, full.Status.Message, "The node was low on resource: inodes.")
	waitFor(t, startTimeout, "the eviction to be over", func() (string, bool) {
		return "", n.output.linesWith("evicted a pod") == 1
	})
	stays(t, 5*time.Second, "exactly one pod is evicted", func() (string, bool) {
		return "", n.output.linesWith("evicted a pod") == 1
	})
	n.waitRunning("calm")
}

// TestEviction_EvictsMemoryHogsBeforeOOMKill starts pods, one after the other, that
// allocate the available memory down to a high threshold. If the eviction fails, the memory
// limit of the pods protects the machine.
func TestEviction_EvictsMemoryHogsBeforeOOMKill(t *testing.T) {
	const (
		rounds = 20 // fewer rounds if each is slow
		fewest = 5
		room   = 3000 * mebi
		limit  = 10000 * mebi
	)
	available := availableMemory(t)
	require.Greater(t, available, int64(limit+4000*mebi), "this machine has too little memory for the test")
	n := newNode(t)
	n.write("calm.yaml", shellPod("calm", "exec sleep 1000", ""))
	n.start("--eviction-hard", fmt.Sprintf("memory.available<%dMi", (available-room)/mebi), "--eviction-pressure-transition-period", "1s")
	n.waitRunning("calm")
	var notice, whole []time.Duration
	for i, began := 0, time.Now(); i < fewest || i < rounds && time.Since(began) < enough; i++ {
		name := fmt.Sprintf("hog%d", i)
		seen := n.output.linesWith(" Evicted: ")
		n.write(name+".yaml", fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  containers:
  - {name: hog, image: kubeparts.test/testserver:1, args: [hog], resources: {limits: {memory: "%d"}, requests: {memory: "0"}}}
`, name, limit))
		var crossed time.Time
		waitFor(t, startTimeout, "the hog to cross the threshold", func() (string, bool) {
			crossed = time.Now()
			now := availableMemory(t)
			return fmt.Sprint(now), now < available-room || n.output.linesWith(" Evicted: ") > seen
		})
		pod := n.waitPod(startTimeout, name, "to be evicted", evicted)
		require.Contains(t, pod.Status.Message, "The node was low on resource: memory.")
		var m []string
		waitFor(t, startTimeout, "the agent to report the eviction", func() (string, bool) {
			m = regexp.MustCompile(name + `.*signal=memory.available decided=(\S+) took=(\S+)`).FindStringSubmatch(n.output.String())
			return "", m != nil
		})
		decided, err := time.Parse(time.RFC3339Nano, m[1])
		require.NoError(t, err)
		took, err := time.ParseDuration(m[2])
		require.NoError(t, err)
		notice, whole = append(notice, decided.Sub(crossed)), append(whole, took)
		n.remove(name + ".yaml")
		n.waitGone(startTimeout, name)
		waitFor(t, startTimeout, "the end of the pressure", func() (string, bool) {
			now := availableMemory(t)
			return fmt.Sprint(now), now > available-room/2
		})
		if i == fewest/2 { // halfway
			n.agent.kill(t)
			n.start("--eviction-hard", fmt.Sprintf("memory.available<%dMi", (available-room)/mebi), "--eviction-pressure-transition-period", "1s")
			continue
		}
		waitFor(t, startTimeout, "the agent to admit pods", func() (string, bool) {
			lines := strings.Split(n.output.String(), " node "+n.hostname+" ")
			last := lines[len(lines)-1]
			return last, strings.HasPrefix(last, "is no longer under pressure")
		})
	}
	t.Logf("from the poll that observed the crossed threshold (every %v) to the decision: %s", pollPeriod, spread(notice))
	figure(t, "evict-notice", slices.Max(notice).Seconds()*1e3, "ms", 0)
	t.Logf("from the decision to the end of the pod, including 1 s of grace: %s", spread(whole))
	require.Zero(t, n.output.linesWith(" OOMKilled: "), "the kernel killed a container before the agent evicted its pod")
	n.waitRunning("calm")
}

func TestAdmission_RejectsBestEffortPodUnderMemoryPressure(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start("--eviction-hard=", "--eviction-soft", "memory.available<99%", "--eviction-soft-grace-period", "memory.available=1h")
	waitFor(t, startTimeout, "the agent to report pressure", func() (string, bool) {
		return "", n.output.linesWith("is under pressure: [MemoryPressure]") > 0
	})
	n.write("best.yaml", shellPod("best", "exec sleep 1000", ""))
	n.write("burst.yaml", shellPod("burst", "exec sleep 1000", "    resources: {requests: {memory: 1Mi}}\n"))
	refused := n.waitPod(startTimeout, "best", "to be refused", evicted)
	require.Equal(t, "Pod was rejected: The node had condition: [MemoryPressure]. ", refused.Status.Message)
	n.waitRunning("burst")
}

func TestEviction_DeletesImagesBeforeEvictingPods(t *testing.T) {
	t.Parallel()
	b := newSmallBed(t, 400)
	for i := range 4 {
		b.addImage(fmt.Sprintf("kubeparts.test/ballast:%d", i), 20) // uses twice the space: content and snapshot
	}
	n := newNode(t)
	n.write("calm.yaml", shellPod("calm", "exec sleep 1000", ""))
	flags := []string{
		"--cri-endpoint", b.endpoint, "--take-over", "--image-gc-high-threshold", "100", "--minimum-image-ttl-duration", "1s",
		"--eviction-pressure-transition-period", "1s",
	}
	n.start(append(flags, "--eviction-hard=")...)
	n.waitRunning("calm")
	waitFor(t, startTimeout, "images-seen.json to exist, and the images to be old enough to be deleted", func() (string, bool) {
		noted, err := os.Stat(n.root + "/images-seen.json")
		return fmt.Sprint(err), err == nil && time.Since(noted.ModTime()) > 2*time.Second
	})
	n.agent.stop(t)
	free := freeBytes(t, b.dir)
	n.start(append(flags, "--eviction-hard", fmt.Sprintf("imagefs.available<%dMi", free/mebi+30))...)
	waitFor(t, startTimeout, "images to be deleted", func() (string, bool) {
		return fmt.Sprint(b.has()), freeBytes(t, b.dir) > free+30*mebi
	})
	stays(t, 5*time.Second, "no pod is evicted", func() (string, bool) { return "", n.output.linesWith("evicted a pod") == 0 })
	n.waitRunning("calm")
	left := 0
	for tag := range b.has() {
		if strings.Contains(tag, "ballast") {
			left++
		}
	}
	t.Logf("%d of 4 images are left, %d MiB free, %d MiB wanted", left, freeBytes(t, b.dir)/mebi, free/mebi+30)
	require.Positive(t, left, "no more images than necessary must be deleted")
}

// leave stops the agent, if it is running, and removes its pods before the disk to which they
// write is unmounted.
func (n *node) leave() {
	if n.agent != nil && !n.agent.over() {
		n.agent.stop(n.t)
	}
	bed.clear(n.t, map[string]string{labelAgent: n.name})
}

func statfs(t *testing.T, dir string) syscall.Statfs_t {
	t.Helper()
	var s syscall.Statfs_t
	require.NoError(t, syscall.Statfs(dir, &s))
	return s
}

func usedBytes(t *testing.T, dir string) int64 {
	t.Helper()
	s := statfs(t, dir)
	return int64(s.Blocks-s.Bfree) * s.Bsize
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	s := statfs(t, dir)
	return int64(s.Bavail) * s.Bsize
}

// availableMemory returns the available memory according to the kernel, plus the free pages
// on the per-CPU lists.
func availableMemory(t *testing.T) int64 {
	t.Helper()
	return sumOf(t, "/proc/meminfo", "MemAvailable:")<<10 + sumOf(t, "/proc/zoneinfo", "count:")*int64(os.Getpagesize())
}

// sumOf returns the sum of the numbers that follow a word in a file.
func sumOf(t *testing.T, file, word string) (sum int64) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}

// spread prints the distribution of durations.
func spread(all []time.Duration) string {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) == 0 {
		return "none"
	}
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d runs, min %v, median %v, p90 %v, max %v", len(sorted), at(0), at(50), at(90), at(100))
}
