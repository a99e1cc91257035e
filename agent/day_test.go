package agent_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/status"
)

// diary records the state changes of pods and the reasons of events. Each entry has the time of the
// last change that the test made, in hours and minutes, and equal entries are recorded once. Exact
// times and counts would differ between runs: the scheduling of goroutines affects the seconds, and
// therefore the number of restarts in a crash loop.
type diary struct {
	mu    sync.Mutex
	time  string
	lines map[string]bool
}

func (d *diary) add(pod, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines[fmt.Sprintf("%s %s %s", d.time, pod, what)] = true
}

// at sets the time of the following entries.
func (d *diary) at(sinceMidnight time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.time = fmt.Sprintf("%02d:%02d", int(sinceMidnight.Hours()), int(sinceMidnight.Minutes())%60)
}

// sorted returns the lines by time.
func (d *diary) sorted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.lines))
}

// AnnotatedEventf is for agent.EventRecorder.
func (d *diary) AnnotatedEventf(object runtime.Object, _ map[string]string, _, reason, _ string, _ ...any) {
	if o, ok := object.(*corev1.ObjectReference); ok && o.Kind == "Pod" {
		d.add(o.Name, "event "+reason)
	}
}

// A simulated day with faults has the same result each time.
func TestAgent_SimulatedDayIsDeterministic(t *testing.T) {
	first := liveADay(t)
	if dayLength < 24*time.Hour {
		require.Equal(t, first, liveADay(t))
		return
	}
	require.Greater(t, len(first), 200)
	text := strings.Join(first, "\n")
	for _, want := range []string{"admitted", "refused", "gone", "event Evicted", "event BackOff", "event Failed", "phase Succeeded"} {
		require.Contains(t, text, want)
	}
	require.Equal(t, first, liveADay(t))
}

// liveADay returns the diary of an agent on a node that changes every few minutes.
func liveADay(t *testing.T) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began, d := time.Now(), &diary{lines: map[string]bool{}}
		node := newNode(t, func(c *fakecri.Config) {
			c.Images = append(c.Images, fakecri.Image{Name: "demo/hog:1"})
			c.Programs["demo/hog:1"] = fakecri.Program{Disk: fakecri.Growth{Start: 1 << 30}}
		})
		pods := newSource()
		c := config(node, pods.file())
		c.MaxPods, c.StaticPods = 6, agent.OrdinaryStaticPods
		c.Eviction = hardEviction(t)
		c.Events = d
		c.Observers.Pod = func(m agent.Move) { d.add(m.Pod.Name, m.To.String()) }
		c.Observers.Statuses = status.Observer{StatusChanged: func(c status.Change) {
			d.add(c.Pod.Name, "phase "+string(c.New.Phase))
		}}
		a := start(t, c)
		w := &weather{t: t, node: node, pods: pods, random: rand.New(rand.NewPCG(1, 2)), defined: map[string]*corev1.Pod{}}
		for time.Since(began) < dayLength {
			d.at(time.Since(began))
			w.change()
			// Wait long enough for all consequences of the change. The time is not a multiple of
			// any period of the agent.
			after(time.Duration(8+w.random.IntN(15))*time.Minute + 137*time.Millisecond)
		}
		w.calm()
		after(10 * time.Minute)
		for _, p := range a.Pods() {
			require.NotEmpty(t, p.Source, p.Spec.Name)
			require.Contains(t, []agent.State{agent.Admitted, agent.Ended, agent.Refused, agent.Removed}, p.State, p.Spec.Name)
		}
		a.stop()
		require.NoError(t, a.err())
		lines = d.sorted()
	})
	return lines
}

// weather applies events to a node.
type weather struct {
	t       *testing.T
	node    *fakecri.Node
	pods    *source
	random  *rand.Rand
	defined map[string]*corev1.Pod
}

// change applies a random event.
func (w *weather) change() {
	w.t.Helper()
	images := []string{"demo/web:1", "demo/job:1", "demo/crash:1", "demo/flaky:1", "demo/slow:1", "demo/hungry:1", "demo/hog:1"}
	name := fmt.Sprintf("pod%d", w.random.IntN(8))
	switch w.random.IntN(10) {
	case 0, 1, 2:
		w.defined[name] = newPod(name, images[w.random.IntN(len(images))])
		if w.random.IntN(2) == 0 {
			w.defined[name].Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		}
		w.define()
	case 3, 4:
		delete(w.defined, name)
		w.define()
	case 5:
		_ = w.node.Kill("default/"+name+"/main", 3) // an error means that the container is not running
	case 6:
		w.node.Restart(time.Duration(w.random.IntN(60)) * time.Second)
	case 7:
		fault := fakecri.Fault{Times: 1 + w.random.IntN(3), Err: errors.New("the runtime has a bad day")}
		methods := []string{"StartContainer", "CreateContainer", "RunPodSandbox", "StopContainer", "RemovePodSandbox", "ListContainers"}
		require.NoError(w.t, w.node.Fail(methods[w.random.IntN(len(methods))], fault))
	case 8:
		require.NoError(w.t, w.node.FailEvents(fakecri.EventFault{Times: 1 + w.random.IntN(3), Lose: true}))
	case 9:
		require.NoError(w.t, w.node.FillDisk(95<<30, 0))
		after(2 * time.Minute)
		require.NoError(w.t, w.node.FillDisk(0, 0))
	}
}

// calm stops all faults.
func (w *weather) calm() {
	for _, method := range []string{"StartContainer", "CreateContainer", "RunPodSandbox", "StopContainer", "RemovePodSandbox", "ListContainers"} {
		w.node.ClearFaults(method)
	}
}

func (w *weather) define() {
	var pods []*corev1.Pod
	for _, p := range w.defined {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	w.pods.define(pods...)
}
