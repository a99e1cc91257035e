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
	// dayVar is the environment variable with the duration of the churn and the faults. The
	// default is five minutes.
	dayVar = "KUBEPARTS_E2E_DAY"
	// dayMebibytes is the size of the disk with the agent's data and the pods' logs.
	dayMebibytes = 128
	// agentDeaths is how often the test kills the agent.
	agentDeaths = 10
)

// trade is the behaviour of one kind of pods.
type trade struct {
	name   string
	pods   int
	script string // script of the main container, after it has written its mark
	policy string // restartPolicy
	main   string // further fields of the main container
	more   string // further fields of the spec
	// settled reports whether a pod has reached its expected final state.
	settled func(*corev1.Pod) bool
	// changes is set if the test replaces pods of this kind with new pods of the same name.
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

// day is a node with pods of all kinds.
type day struct {
	*node
	marks  string // directory to which each start of a main container writes a line
	random *rand.Rand
	all    map[string]trade // by the pod's name
	names  []string         // names of pods that are replaced
	writes int
	args   []string

	mu   sync.Mutex
	seen map[string]instance // main containers by ID, including removed ones
	lost map[string]bool     // IDs of containers whose task containerd lost
}

// TestFaults_PodsMatchSpecsAndLeaveNothing creates and removes pods of every kind for five minutes. During this time
// it kills the agent ten times, kills containerd, stops a container's process, and fills the
// disk, and the kernel kills a container for memory. At the end each pod must be in the state
// that its spec implies, with as many restarts as have happened. After all pods have been
// removed, nothing of them may be left. Not parallel: other tests need the runtime, and this
// test counts its objects.
func TestFaults_PodsMatchSpecsAndLeaveNothing(t *testing.T) {
	length := 5 * time.Minute
	if text := os.Getenv(dayVar); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, dayVar)
	}
	d := newDay(t)
	before := settledStock(t)
	stop := d.watch()
	d.start(d.args...)
	d.waitUp()
	began := time.Now()
	d.faults(length)
	t.Logf("%v with faults: %d manifests written, agent killed %d times", time.Since(began).Round(time.Second), d.writes, agentDeaths)

	d.settle()
	d.requireRestartsAreDeaths()
	stop()
	d.requireTold()

	for name := range d.all {
		d.remove(name + ".yaml")
	}
	d.remove("objects.yaml")
	began = time.Now()
	// The test asks the runtime, because the agent does not list pods without a manifest.
	// containerd may need more than 10 s to report the end of a container in which a probe or
	// a hook was just being started.
	waitFor(t, 2*time.Minute, "all pods to be gone", func() (string, bool) {
		left, err := bed.sandboxes(map[string]string{labelAgent: d.name})
		return fmt.Sprint(left, err), err == nil && len(left) == 0
	})
	d.requireNothingLeft()
	waitFor(t, startTimeout, "the machine to have no more than before the test", func() (string, bool) {
		bed.killStrayShims(t)
		now := takeStock(t)
		return fmt.Sprintf("more than before: %q", now.moreThan(before)), len(now.moreThan(before)) == 0
	})
	t.Logf("all pods were completely removed %v after their manifests", time.Since(began).Round(100*time.Millisecond))
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

// waitUp waits until all pods have started, and all pods that end by themselves have reached
// their final state. Otherwise a container could exit while its runtime is down, and its result
// would be unknown.
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

// watch records the main containers until the returned function is called, because dead
// containers are removed when the disk is full.
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

// look records the current containers. The runtime may be down.
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
			d.t.Log("containerd forgot a task: ", bed.deleteTask(c.GetId())) // otherwise its pod could not be removed
		}
	}
}

// mains is the main containers of a pod that were observed.
type mains struct {
	ran []instance // terminated or running
	// lost is containers that were created and whose task the runtime lost.
	lost []instance
	// broken is containers that have not started according to the runtime. If the agent was
	// killed during the start, the process may have run; the agent repeats this attempt.
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

// faults replaces pods at short intervals, and injects faults at fixed times.
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
		if d.hasRoom() { // a pod that is created while the disk is full is rejected permanently
			name := d.names[d.random.IntN(len(d.names))]
			d.writes++
			d.write(name+".yaml", d.all[name].manifest(name, d.marks, d.writes))
		}
	}
	require.Empty(d.t, plan, "faults that were not injected")
}

// hasRoom reports whether the disk has free space again.
func (d *day) hasRoom() bool {
	s := statfs(d.t, d.root)
	return s.Bavail*10 > s.Blocks*4 && d.output.linesWith("is under pressure: ") <= d.output.linesWith("is no longer under pressure")
}

func (d *day) killAgent() {
	d.agent.kill(d.t)
	d.start(d.args...)
}

// hang stops a container's process, so that it no longer responds to probes.
func (d *day) hang() {
	pod := d.waitPod(time.Minute, "hung0", "to run", running)
	for _, i := range bed.instances(d.t, podLabels(pod)) {
		if i.running() {
			require.NoError(d.t, syscall.Kill(bed.pid(d.t, i.ID), syscall.SIGSTOP))
		}
	}
}

func (d *day) killContainerd() {
	// If containerd is killed while it creates or removes a sandbox, it loses the sandbox,
	// and a shim, a lease or a network namespace is left. Some pods are in restart back-off
	// because they ended while the agent was down.
	waitFor(d.t, 2*time.Minute, "no pod to be starting or terminating", d.atRest)
	pid, err := bed.containerd()
	require.NoError(d.t, err)
	require.NoError(d.t, syscall.Kill(pid, syscall.SIGKILL))
	waitFor(d.t, 15*time.Second, "the agent to say so", func() (string, bool) {
		code, body, err := d.agent.get("/readyz?verbose")
		return fmt.Sprint(code, body, err), strings.Contains(body, "[-]")
	})
	require.NoError(d.t, bedUp(bed.dir))
	bed.conn.ResetConnectBackoff()
	// Wait, because the next fault may kill this agent.
	waitFor(d.t, 15*time.Second, "the agent to see that it is back", func() (string, bool) {
		return "", d.output.linesWith("the runtime is ready again") > 0
	})
}

// atRest reports whether each pod with a sandbox has a manifest and has started. It also
// returns the states of the pods.
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

// fillDisk adds a pod that writes more than the free space, and waits until it is evicted.
func (d *day) fillDisk() {
	k := trades()[len(trades())-1]
	d.all["full0"] = k
	d.write("full0.yaml", k.manifest("full0", d.marks, 0))
	d.waitPod(3*time.Minute, "full0", "to be evicted", evicted)
	waitFor(d.t, 2*time.Minute, "its logs to go", func() (string, bool) { return "", d.hasRoom() })
}

// settle waits until each pod has reached its final state.
func (d *day) settle() {
	began := time.Now()
	waitFor(d.t, 3*time.Minute, "all pods to reach the state that their specs imply", func() (string, bool) {
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

// requireRestartsAreDeaths compares the agent's restart count of each main container with the
// containers that the runtime has or had, and with the lines that the processes have written.
func (d *day) requireRestartsAreDeaths() {
	deaths := 0
	waitFor(d.t, time.Minute, "a moment in which no container exits", func() (string, bool) {
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

// miscounted returns the error in a pod's restart count, or "".
func (d *day) miscounted(pod *corev1.Pod) string {
	if evicted(pod) {
		return "" // its containers were removed with it
	}
	found := d.mains(pod)
	attempts := map[string]bool{}
	for _, i := range slices.Concat(found.ran, found.lost) {
		attempts[i.Restarts] = true
	}
	restarts := int(firstStatus(pod).RestartCount)
	begun, last := restarts+1, strconv.Itoa(restarts)
	if !attempts[last] && slices.ContainsFunc(found.broken, func(i instance) bool { return i.Restarts == last }) {
		begun-- // the agent repeats this attempt after its back-off
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

// requireTold fails the test unless the agent has logged each fault.
func (d *day) requireTold() {
	for what, line := range map[string]string{
		"the container that hung":    "hung0-" + d.hostname + " Unhealthy spec.containers{main}: Liveness probe failed",
		"the disk that was full":     "full0-" + d.hostname + " Evicted: ",
		"what the kernel killed":     "hungry0-" + d.hostname + " OOMKilled: ",
		"the runtime that was gone":  "the runtime is not ready: ",
		"the runtime that came back": "the runtime is ready again",
	} {
		require.Positive(d.t, d.output.linesWith(line), "no line about %s in the agent's output", what)
	}
	require.Greater(d.t, d.output.linesWith("adopted: the pod ran before this agent started"), 10, "adopted pods of the agents that were started last")
}
