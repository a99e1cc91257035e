//go:build cluster && measure

package clusterbed_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestComparison_AgentAndKubelet measures the kubelet and cluster-agent in turn, each as the node of this
// cluster with the same configuration and the same pods, in KPCLUSTER_ROUNDS rounds (5), and writes a
// table to testdata/beside.md. It needs a machine on which nothing else runs.
func TestComparison_AgentAndKubelet(t *testing.T) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("KPCLUSTER_ROUNDS"), "5"))
	require.NoError(t, err)
	inNamespace(t)
	require.NoError(t, script("./kubelet.sh"), "the first start does not wait for the build")
	defer restart(t, credentials()...)
	kubelet, ours := &figures{}, &figures{}
	for range rounds {
		for _, node := range []struct {
			start func() error
			*figures
		}{{startKubelet, kubelet}, {startQuietAgent, ours}} {
			require.NoError(t, stopAgent())
			run(t, "delete", "node", bed.env["NODE_NAME"])
			began := time.Now()
			require.NoError(t, node.start())
			require.NoError(t, awaitNode())
			node.add("node ready after start, s", time.Since(began).Seconds())
			measure(t, node.figures)
		}
		text := table(kubelet, ours)
		t.Log("\n" + text)
		require.NoError(t, os.WriteFile("testdata/beside.md", []byte(text), 0o644))
	}
}

// startQuietAgent starts cluster-agent with the kubelet's log level.
func startQuietAgent() error { return startAgent(append(credentials(), "--v", "2")...) }

// figures are the values of each figure, a value for each round.
type figures struct {
	names  []string // in the order of the measurement
	values map[string][]float64
}

func (f *figures) add(name string, value float64) {
	if f.values == nil {
		f.values = map[string][]float64{}
	}
	if !slices.Contains(f.names, name) {
		f.names = append(f.names, name)
	}
	f.values[name] = append(f.values[name], value)
}

// quantiles adds the median and the 99th percentile of durations in seconds.
func (f *figures) quantiles(name string, seconds []float64) {
	slices.Sort(seconds)
	f.add(name+", p50", seconds[len(seconds)/2])
	f.add(name+", p99", seconds[min(len(seconds)-1, len(seconds)*99/100)])
}

// show returns the median of a figure and, if there are several values, its range.
func (f *figures) show(name string) string {
	values := slices.Sorted(slices.Values(f.values[name]))
	text := fmt.Sprintf("%.3g", values[len(values)/2])
	if len(values) > 1 {
		text += fmt.Sprintf(" (%.3g–%.3g)", values[0], values[len(values)-1])
	}
	return text
}

// table returns a Markdown table with the figures of both nodes.
func table(kubelet, ours *figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s, on %s, in %d rounds: the median, and the range of all rounds.\n\n", time.Now().Format(time.DateOnly), machine(), len(ours.values[ours.names[0]]))
	b.WriteString("| figure | kubelet | cluster-agent |\n|---|---:|---:|\n")
	for _, name := range ours.names {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, kubelet.show(name), ours.show(name))
	}
	return b.String()
}

// measure measures the node: at rest without pods, ten pods that start one after the other and end
// together, a Deployment that grows to 50 and to 100 pods, at rest with 100 pods, and the end of
// these pods.
func measure(t *testing.T, f *figures) {
	t.Helper()
	pods, stop := watchPods(t)
	defer stop()
	rest(t, f, "rest, 0 pods", 20*time.Second)

	for i := range 10 {
		apply(t, pausing(fmt.Sprintf("single%d", i)))
		pods.await(t, "the pod is ready", i+1, life.isReady)
	}
	f.quantiles("1 pod, bound to ready, s", durations(pods.that(life.isReady), life.toReady))
	run(t, "delete", "pods", "--all", "--wait=false")
	pods.await(t, "the pods are gone", 10, life.isGone)
	f.quantiles("10 pods, deleted to gone, s", durations(pods.that(life.isGone), life.toGone))

	apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: many}
spec:
  replicas: 0
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: pause, image: "kubeparts.test/pause:1"}]
`)
	for _, replicas := range []int{50, 100} {
		what := fmt.Sprintf("%d → %d pods", replicas-50, replicas)
		used := begin(t)
		added := func(l life) bool { return l.isReady() && l.bound.After(used.at) }
		run(t, "scale", "deployment", "many", fmt.Sprintf("--replicas=%d", replicas))
		pods.await(t, "the pods are ready", 50, added)
		cpu, requests := used.end(t)
		f.quantiles(what+", bound to ready, s", durations(pods.that(added), life.toReady))
		f.add(what+", CPU s", cpu)
		f.add(what+", requests", float64(requests))
	}
	rest(t, f, "the minute after 100 pods", 0)
	rest(t, f, "rest, 100 pods", time.Minute)

	used := begin(t)
	deleted := func(l life) bool { return l.isGone() && l.deleting.After(used.at) }
	run(t, "scale", "deployment", "many", "--replicas=0")
	pods.await(t, "the pods are gone", 100, deleted)
	cpu, requests := used.end(t)
	f.quantiles("100 pods, deleted to gone, s", durations(pods.that(deleted), life.toGone))
	f.add("100 pods deleted, CPU s", cpu)
	f.add("100 pods deleted, requests", float64(requests))
	run(t, "delete", "deployment", "many")
}

// pausing returns the manifest of a pod that does nothing.
func pausing(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: pause, image: \"kubeparts.test/pause:1\"}]}\n", name)
}

// rest measures the node for a minute in which nothing changes.
func rest(t *testing.T, f *figures, name string, settle time.Duration) {
	t.Helper()
	pause(settle)
	used := begin(t)
	pause(time.Minute)
	cpu, requests := used.end(t)
	f.add(name+", CPU s a minute", cpu)
	f.add(name+", requests a minute without leases", float64(requests))
	f.add(name+", RSS MiB", rss(t))
}

// usage is what the node has used when a step begins.
type usage struct {
	at    time.Time
	cpu   float64
	audit int64 // size of the audit log
}

func begin(t *testing.T) usage {
	t.Helper()
	return usage{time.Now(), cpuSeconds(t), auditMark(t)}
}

// end returns the seconds of CPU that the node has used since the step began, and the number of its
// requests to the API server, without those about its lease.
func (u usage) end(t *testing.T) (cpu float64, requests int) {
	t.Helper()
	events, err := auditEvents(u.audit)
	require.NoError(t, err)
	for _, e := range events {
		ended := e.Stage == "ResponseComplete" && e.Verb != "watch" || e.Stage == "ResponseStarted" && e.Verb == "watch"
		if ended && e.ofNode() && e.ObjectRef.Resource != "leases" {
			requests++
		}
	}
	return cpuSeconds(t) - u.cpu, requests
}

// cpuSeconds returns the CPU time of the agent's process. The kernel counts it in hundredths of a
// second.
func cpuSeconds(t *testing.T) float64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", bed.agent.Process.Pid))
	require.NoError(t, err)
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return float64(user+system) / 100
}

// rss returns the resident memory of the agent's process in MiB.
func rss(t *testing.T) float64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", bed.agent.Process.Pid))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(data), "VmRSS:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return float64(kib) / 1024
}

// life is the times at which the API server reported the states of a pod; zero means not yet.
type life struct{ bound, ready, deleting, gone time.Time }

func (l life) isReady() bool    { return !l.ready.IsZero() && l.gone.IsZero() }
func (l life) isGone() bool     { return !l.gone.IsZero() }
func (l life) toReady() float64 { return l.ready.Sub(l.bound).Seconds() }
func (l life) toGone() float64  { return l.gone.Sub(l.deleting).Seconds() }

// durations returns a duration of each pod.
func durations(pods []life, duration func(life) float64) (seconds []float64) {
	for _, l := range pods {
		seconds = append(seconds, duration(l))
	}
	return seconds
}

// lives are the lives of the pods of a namespace, from a watch.
type lives struct {
	mu     sync.Mutex
	byUID  map[types.UID]*life
	wakeUp chan struct{}
}

// watchPods watches the pods of the test until stop is called.
func watchPods(t *testing.T) (p *lives, stop func()) {
	t.Helper()
	p = &lives{byUID: map[types.UID]*life{}, wakeUp: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, bed.env["RUN_INSIDE"], "kubectl", "-n", namespace(t), "get", "pods", "--watch", "--output-watch-events", "-o", "json")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var reader sync.WaitGroup
	reader.Go(func() { p.read(json.NewDecoder(out)) })
	return p, func() {
		cancel()
		reader.Wait()
		_ = c.Wait() // it was killed
	}
}

// read reads the events of a watch until it ends.
func (p *lives) read(events *json.Decoder) {
	for {
		var event struct {
			Type   string
			Object corev1.Pod
		}
		if events.Decode(&event) != nil {
			return
		}
		p.see(&event.Object, event.Type == "DELETED", time.Now())
		select {
		case p.wakeUp <- struct{}{}:
		default:
		}
	}
}

// see records the state of a pod.
func (p *lives) see(pod *corev1.Pod, gone bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.byUID[pod.UID]
	if l == nil {
		l = &life{}
		p.byUID[pod.UID] = l
	}
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	for _, state := range []struct {
		at   *time.Time
		true bool
	}{{&l.bound, pod.Spec.NodeName != ""}, {&l.ready, ready}, {&l.deleting, pod.DeletionTimestamp != nil}, {&l.gone, gone}} {
		if state.true && state.at.IsZero() {
			*state.at = now
		}
	}
}

// that returns the pods for which is returns true.
func (p *lives) that(is func(life) bool) (pods []life) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.byUID {
		if is(*l) {
			pods = append(pods, *l)
		}
	}
	return pods
}

// await waits until is returns true for n pods.
func (p *lives) await(t *testing.T, what string, n int, is func(life) bool) {
	t.Helper()
	end := time.After(4 * time.Minute)
	for len(p.that(is)) < n {
		select {
		case <-p.wakeUp:
		case <-end:
			require.Fail(t, "not within four minutes: "+what)
		}
	}
}
