//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// dayVar names how long pods come, go and are hit by faults: five minutes if it is
	// not set.
	dayVar = "KUBEPARTS_E2E_DAY"
	// dayMebibytes is the disk that the agent and the pods' logs share.
	dayMebibytes = 128
	// agentDeaths is how often the agent is killed in a day.
	agentDeaths = 10
)

// trade is what pods of a sort do.
type trade struct {
	name   string
	pods   int
	script string // of the main container, after it has made its mark
	policy string // restartPolicy
	main   string // more of the main container
	more   string // more of the spec
	// settled says whether a pod is as it should be in the end.
	settled func(*corev1.Pod) bool
	// changes says that the day replaces pods of this sort by others of their name.
	changes bool
}

const forever = "exec sleep 100000"

func trades() []trade {
	ended := func(phase corev1.PodPhase, restarts int32) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			return p.Status.Phase == phase && firstStatus(p).RestartCount >= restarts
		}
	}
	restarted := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && firstStatus(p).RestartCount > 0
	}
	probe := "httpGet: {port: 8080, path: /}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 2"
	web := "mkdir /tmp/w; echo hello >/tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"
	return []trade{
		{name: "calm", pods: 20, script: forever, settled: ready, changes: true},
		{
			name: "web", pods: 6, script: web, settled: ready, changes: true,
			main: "readinessProbe: {" + probe + "}, livenessProbe: {" + probe + ", initialDelaySeconds: 5},",
		},
		{
			name: "hung", pods: 1, script: web, settled: func(p *corev1.Pod) bool { return ready(p) && restarted(p) },
			main: "livenessProbe: {" + probe + ", initialDelaySeconds: 5},",
		},
		{name: "crash", pods: 6, script: "sleep 2; exit 1", settled: restarted},
		{name: "done", pods: 4, script: "sleep 1; exit 0", policy: "Never", settled: ended(corev1.PodSucceeded, 0)},
		{name: "failed", pods: 4, script: "sleep 1; exit 3", policy: "Never", settled: ended(corev1.PodFailed, 0)},
		{
			name: "retry", pods: 4, policy: "OnFailure", settled: ended(corev1.PodSucceeded, 2),
			script: "[ $(wc -l </marks/$POD.main) -ge 3 ]",
		},
		{
			name: "order", pods: 4, script: "[ -e /shared/first ] && " + forever, settled: ready, changes: true,
			main: "volumeMounts: [{name: marks, mountPath: /marks}, {name: shared, mountPath: /shared}],",
			more: `  initContainers:
  - {name: first, image: "kubeparts.test/busybox:1", command: [touch, /shared/first], volumeMounts: [{name: shared, mountPath: /shared}]}
  - {name: side, image: "kubeparts.test/busybox:1", command: [sleep, "100000"], restartPolicy: Always,
     startupProbe: {exec: {command: [test, -e, /shared/first]}, periodSeconds: 1, timeoutSeconds: 20}, volumeMounts: [{name: shared, mountPath: /shared}]}
`,
		},
		{
			name: "files", pods: 4, script: `[ "$(cat /shared/file.txt)" = "from the map" ] && ` + forever, settled: ready, changes: true,
			main: "volumeMounts: [{name: marks, mountPath: /marks}, {name: map, mountPath: /shared}, {name: keys, mountPath: /keys}],",
		},
		{
			name: "hooks", pods: 4, script: forever, settled: ready, changes: true,
			main: "lifecycle: {postStart: {exec: {command: [touch, /tmp/up]}}, preStop: {exec: {command: [sleep, \"0.2\"]}}}, readinessProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 2},",
		},
		{
			name: "hungry", pods: 3, script: "exec tail /dev/zero", main: "resources: {limits: {memory: 32Mi}},",
			settled: func(p *corev1.Pod) bool {
				c := firstStatus(p)
				return restarted(p) && (c.State.Terminated != nil && c.State.Terminated.Reason == "OOMKilled" ||
					c.LastTerminationState.Terminated != nil && c.LastTerminationState.Terminated.Reason == "OOMKilled")
			},
		},
		{name: "full", settled: evicted, script: fmt.Sprintf("dd if=/dev/zero bs=1M count=%d 2>/dev/null | tr '\\000' x | fold -w 1000; "+forever, 2*dayMebibytes)},
	}
}

func (k trade) manifest(name, marks string, generation int) string {
	mounts := "volumeMounts: [{name: marks, mountPath: /marks}],"
	if strings.Contains(k.main, "volumeMounts:") {
		mounts = ""
	}
	policy := k.policy
	if policy == "" {
		policy = "Always"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: %s
  volumes: [{name: marks, hostPath: {path: %q, type: Directory}}, {name: shared, emptyDir: {medium: Memory, sizeLimit: 1Mi}},
    {name: map, configMap: {name: settings}}, {name: keys, secret: {secretName: keys}}]
  containers:
  - {name: main, image: "kubeparts.test/busybox:1", %s %s
     env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, {name: GENERATION, value: "%d"}],
     command: [sh, -c, %q]}
%s`, name, policy, marks, mounts, k.main, generation, "echo $GENERATION >>/marks/$POD.main; "+k.script, k.more)
}

// day is a node with pods of all trades.
type day struct {
	*node
	marks  string // folder in which each start of a main container leaves a line
	random *rand.Rand
	all    map[string]trade // by the pod's name
	names  []string         // of those that change
	writes int
	args   []string

	mu   sync.Mutex
	seen map[string]instance // main containers by id, those that are gone too
	lost map[string]bool     // which of them their runtime forgot
}

// TestADayInTheLife is five minutes in which pods of every sort come and go while the
// agent is killed ten times, containerd dies, a container hangs, the disk fills up and
// the kernel kills. When it is over each pod must be in the state that its spec
// implies, its restarts those that have happened, and when they are all gone nothing of
// them may be left. Not parallel: others need the runtime, and count what is there.
func TestADayInTheLife(t *testing.T) {
	length := 5 * time.Minute
	if text := os.Getenv(dayVar); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, dayVar)
	}
	d := newDay(t)
	before := takeStock(t)
	stop := d.watch()
	d.start(d.args...)
	d.waitUp()
	began := time.Now()
	d.faults(length)
	t.Logf("%v of faults: %d manifests written, the agent killed %d times", time.Since(began).Round(time.Second), d.writes, agentDeaths)

	d.settle()
	d.requireRestartsAreDeaths()
	stop()
	d.requireTold()

	for name := range d.all {
		d.remove(name + ".yaml")
	}
	d.remove("objects.yaml")
	began = time.Now()
	// The runtime is asked, because the agent lists no pod whose manifest is gone.
	// containerd may need more than 10 s to see the end of a container in which a probe
	// or a hook was just being started.
	waitFor(t, 2*time.Minute, "all pods to be gone", func() (string, bool) {
		left, err := bed.sandboxes(map[string]string{labelAgent: d.name})
		return fmt.Sprint(left, err), err == nil && len(left) == 0
	})
	d.requireNothingLeft()
	waitFor(t, 30*time.Second, "the machine to be as it was before", func() (string, bool) {
		bed.killStrayShims(t)
		now := takeStock(t)
		return fmt.Sprintf("now %v, before %v", now, before), now == before
	})
	t.Logf("all gone, without a trace, %v after their manifests", time.Since(began).Round(100*time.Millisecond))
	d.agent.stop(t)
}

func newDay(t *testing.T) *day {
	t.Helper()
	d := &day{node: newNode(t), random: rand.New(rand.NewPCG(1, 2)), all: map[string]trade{}, seen: map[string]instance{}, lost: map[string]bool{}}
	d.marks = filepath.Join(filepath.Dir(d.manifests), "marks")
	require.NoError(t, os.Mkdir(d.marks, 0o755))
	mountMemory(t, d.root, dayMebibytes)
	t.Cleanup(func() { d.leave(); d.unmountAll() })
	parent := "/kpbed-" + d.hostname
	t.Cleanup(func() { removeCgroups(t, parent) })
	d.args = []string{
		"--eviction-hard", "nodefs.available<30%", "--eviction-pressure-transition-period", "3s", "--container-log-max-size=-1",
		"--maximum-dead-containers-per-container=-1", "--cgroup-parent", parent,
	}
	d.write("objects.yaml", objects)
	for _, k := range trades() {
		for i := range k.pods {
			name := fmt.Sprintf("%s%d", k.name, i)
			d.all[name] = k
			d.write(name+".yaml", k.manifest(name, d.marks, 0))
			if k.changes {
				d.names = append(d.names, name)
			}
		}
	}
	return d
}

// waitUp waits until all pods have begun, and those that end have ended: how one
// ended while its runtime was away, nobody could tell.
func (d *day) waitUp() {
	d.t.Helper()
	began := time.Now()
	waitFor(d.t, 3*time.Minute, "all pods to have begun", func() (string, bool) {
		pods, err := d.agent.pods()
		var not []corev1.Pod
		for i := range pods {
			k := d.all[strings.TrimSuffix(pods[i].Name, "-"+d.hostname)]
			if pods[i].Status.Phase == corev1.PodPending || k.policy != "" && !k.settled(&pods[i]) {
				not = append(not, pods[i])
			}
		}
		return fmt.Sprint(describe(not), err), err == nil && len(pods) == len(d.all) && len(not) == 0
	})
	d.t.Logf("%d pods had begun after %v", len(d.all), time.Since(began).Round(100*time.Millisecond))
}

// watch notes which main containers there are until the returned function is called:
// dead ones go when the disk is short.
func (d *day) watch() (stop func()) {
	ctx, cancel := context.WithCancel(d.t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			d.look(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); watcher.Wait() }
}

// look takes note of what there is now. There may be no runtime.
func (d *day) look(ctx context.Context) {
	list, err := bed.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{labelAgent: d.name, labelContainerName: "main"},
	}})
	if err != nil {
		return
	}
	for _, c := range list.GetContainers() {
		d.mu.Lock()
		before, known := d.seen[c.GetId()]
		d.mu.Unlock()
		if known && before.State == c.GetState() {
			continue
		}
		answer, err := bed.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil {
			continue
		}
		st := answer.GetStatus()
		d.mu.Lock()
		d.seen[c.GetId()] = instance{
			ID: c.GetId(), Sandbox: c.GetLabels()[labelPodUID], Name: "main", State: st.GetState(), Restarts: st.GetAnnotations()[annotationRestarts],
			Started: time.Unix(0, st.GetStartedAt()), Finished: time.Unix(0, st.GetFinishedAt()), ExitCode: st.GetExitCode(),
		}
		d.lost[c.GetId()] = d.lost[c.GetId()] || forgotten(st)
		d.mu.Unlock()
		if forgotten(st) {
			d.t.Log("containerd forgot a task: ", bed.deleteTask(c.GetId())) // or its pod could not be removed
		}
	}
}

// mains are the main containers of a pod that were seen.
type mains struct {
	ran []instance // or run
	// lost were made, and died of their runtime's having forgotten them.
	lost []instance
	// broken have not started, as far as the runtime knows. Of a start that was broken
	// off with its agent the process may have begun; the attempt is made again.
	broken []instance
}

func (d *day) mains(pod *corev1.Pod) (found mains) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, i := range d.seen {
		switch {
		case i.Sandbox != string(pod.UID):
		case i.Started.After(time.Unix(0, 0)):
			found.ran = append(found.ran, i)
		case d.lost[id]:
			found.lost = append(found.lost, i)
		default:
			found.broken = append(found.broken, i)
		}
	}
	slices.SortFunc(found.ran, func(a, b instance) int { return a.Started.Compare(b.Started) })
	return found
}

// faults has a pod replaced every moment, and something go wrong at set times.
func (d *day) faults(length time.Duration) {
	type fault struct {
		at time.Duration
		do func()
	}
	percent := func(n time.Duration) time.Duration { return length * n / 100 }
	plan := []fault{{percent(15), d.hang}, {percent(38), d.killContainerd}, {percent(64), d.fillDisk}}
	for i := range time.Duration(agentDeaths) {
		plan = append(plan, fault{length * (i + 1) / (agentDeaths + 1), d.killAgent})
	}
	began := time.Now()
	tick := time.NewTicker(1500 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < length {
		<-tick.C
		plan = slices.DeleteFunc(plan, func(f fault) bool {
			due := f.at <= time.Since(began)
			if due {
				f.do()
			}
			return due
		})
		if d.hasRoom() { // a pod that comes while there is none is refused, and stays so
			name := d.names[d.random.IntN(len(d.names))]
			d.writes++
			d.write(name+".yaml", d.all[name].manifest(name, d.marks, d.writes))
		}
	}
	require.Empty(d.t, plan, "faults that did not happen")
}

// hasRoom says whether the disk has been emptied again.
func (d *day) hasRoom() bool {
	s := statfs(d.t, d.root)
	return s.Bavail*10 > s.Blocks*4 && d.output.linesWith("is under pressure: ") <= d.output.linesWith("is no longer under pressure")
}

func (d *day) killAgent() {
	d.agent.kill(d.t)
	d.start(d.args...)
}

// hang stops a container's process, which answers no probe from then on.
func (d *day) hang() {
	pod := d.waitPod(time.Minute, "hung0", "to run", running)
	for _, i := range bed.instances(d.t, podLabels(pod)) {
		if i.running() {
			require.NoError(d.t, syscall.Kill(bed.pid(d.t, i.ID), syscall.SIGSTOP))
		}
	}
}

func (d *day) killContainerd() {
	// Of a sandbox in the making or in its removal the runtime would know nothing
	// afterwards, and leave a shim, a lease or a network namespace of it to nobody.
	// Some have a back-off before them, of their restarts while the agent was away.
	waitFor(d.t, 2*time.Minute, "no pod to be beginning or ending", d.atRest)
	pid, err := bed.containerd()
	require.NoError(d.t, err)
	require.NoError(d.t, syscall.Kill(pid, syscall.SIGKILL))
	waitFor(d.t, 15*time.Second, "the agent to say so", func() (string, bool) {
		code, body, err := d.agent.get("/readyz?verbose")
		return fmt.Sprint(code, body, err), strings.Contains(body, "[-]")
	})
	require.NoError(d.t, bedUp(bed.dir))
	bed.conn.ResetConnectBackoff()
	// Before the next fault, which may be this agent's end.
	waitFor(d.t, 15*time.Second, "the agent to see that it is back", func() (string, bool) {
		return "", d.output.linesWith("the runtime is ready again") > 0
	})
}

// atRest says whether each pod that has a sandbox is one that the agent wants and that
// has begun, and what the pods are.
func (d *day) atRest() (string, bool) {
	pods, err := d.agent.pods()
	if err != nil {
		return err.Error(), false
	}
	begun := map[string]bool{}
	for i := range pods {
		begun[string(pods[i].UID)] = pods[i].Status.Phase != "" && pods[i].Status.Phase != corev1.PodPending
	}
	boxes, err := bed.runtime.ListPodSandbox(d.t.Context(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelAgent: d.name}},
	})
	if err != nil {
		return err.Error(), false
	}
	for _, box := range boxes.GetItems() {
		if !begun[box.GetLabels()[labelPodUID]] {
			return fmt.Sprintf("sandbox %s of %s: %s", box.GetId(), box.GetMetadata().GetName(), describe(pods)), false
		}
	}
	for uid, has := range begun {
		if !has {
			return fmt.Sprintf("pod %s has not begun: %s", uid, describe(pods)), false
		}
	}
	return "", true
}

// fillDisk adds a pod that writes more than there is room for, and waits until it is
// evicted.
func (d *day) fillDisk() {
	k := trades()[len(trades())-1]
	d.all["full0"] = k
	d.write("full0.yaml", k.manifest("full0", d.marks, 0))
	d.waitPod(3*time.Minute, "full0", "to be evicted", evicted)
	waitFor(d.t, 2*time.Minute, "its logs to go", func() (string, bool) { return "", d.hasRoom() })
}

// settle waits until each pod is as it should be.
func (d *day) settle() {
	began := time.Now()
	waitFor(d.t, 3*time.Minute, "all pods to be as their specs imply", func() (string, bool) {
		pods, err := d.agent.pods()
		if err != nil {
			return err.Error(), false
		}
		var not []corev1.Pod
		for i := range pods {
			if k := d.all[strings.TrimSuffix(pods[i].Name, "-"+d.hostname)]; !k.settled(&pods[i]) {
				not = append(not, pods[i])
			}
		}
		return describe(not), len(pods) == len(d.all) && len(not) == 0
	})
	d.t.Logf("%d pods were as they should be %v after the last fault", len(d.all), time.Since(began).Round(100*time.Millisecond))
}

// requireRestartsAreDeaths compares the agent's count of each main container with the
// containers that the runtime has or had, and with what the processes themselves have
// left.
func (d *day) requireRestartsAreDeaths() {
	deaths := 0
	waitFor(d.t, time.Minute, "a moment in which nothing ends", func() (string, bool) {
		pods, err := d.agent.pods()
		if err != nil {
			return err.Error(), false
		}
		deaths = 0
		for i := range pods {
			if seen := d.miscounted(&pods[i]); seen != "" {
				return seen, false
			}
			deaths += int(firstStatus(&pods[i]).RestartCount)
		}
		return "", true
	})
	d.t.Logf("%d restarts, each of a container that had died", deaths)
}

// miscounted says what is wrong with the count of a pod's restarts.
func (d *day) miscounted(pod *corev1.Pod) string {
	if evicted(pod) {
		return "" // its containers went with it
	}
	found := d.mains(pod)
	attempts := map[string]bool{}
	for _, i := range slices.Concat(found.ran, found.lost) {
		attempts[i.Restarts] = true
	}
	restarts := int(firstStatus(pod).RestartCount)
	begun, last := restarts+1, strconv.Itoa(restarts)
	if !attempts[last] && slices.ContainsFunc(found.broken, func(i instance) bool { return i.Restarts == last }) {
		begun-- // this attempt is made again when its back-off is over
	}
	for i := range begun {
		if !attempts[strconv.Itoa(i)] {
			return fmt.Sprintf("%s has restarted %d times, but there is no container %d: %v", pod.Name, restarts, i, found)
		}
	}
	marks, err := os.ReadFile(filepath.Join(d.marks, string(pod.UID)+".main"))
	lines, ran, dead := strings.Count(string(marks), "\n"), len(found.ran), len(found.ran)+len(found.lost)
	if dead != begun || lines < ran || lines > ran+len(found.broken) || err != nil {
		return fmt.Sprintf("%s has restarted %d times, and it has begun %d times: %v %v", pod.Name, restarts, lines, found, err)
	}
	return ""
}

// requireTold fails the test unless each fault was told.
func (d *day) requireTold() {
	for what, line := range map[string]string{
		"the container that hung":    "hung0-" + d.hostname + " Unhealthy spec.containers{main}: Liveness probe failed",
		"the disk that was full":     "full0-" + d.hostname + " Evicted: ",
		"what the kernel killed":     "hungry0-" + d.hostname + " OOMKilled: ",
		"the runtime that was gone":  "the runtime is not ready: ",
		"the runtime that came back": "the runtime is ready again",
	} {
		require.Positive(d.t, d.output.linesWith(line), "nothing was said of %s", what)
	}
	require.Greater(d.t, d.output.linesWith("adopted: the pod ran before this agent started"), 10, "what the next agent found")
}
