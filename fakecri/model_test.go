package fakecri_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// model is a simple model of the runtime: a table of pods, a table of
// containers, by name, and rules.
type model struct {
	now        time.Duration
	pods       map[string]bool // name → ready
	containers map[string]*modelContainer
}

type modelContainer struct {
	pod, image string
	state      runtimeapi.ContainerState
	code       int32
	reason     string
	ends       time.Duration // time until it exits by itself, if it runs
	oom        bool
}

// modelPrograms returns for each image when and how its program exits by
// itself.
func modelPrograms() map[string]modelContainer {
	return map[string]modelContainer{
		"demo/web:1":    {ends: 1000 * time.Hour},
		"demo/job:1":    {ends: 500 * time.Millisecond, reason: "Completed"},
		"demo/crash:1":  {ends: time.Second, code: 1, reason: "Error"},
		"demo/hungry:1": {ends: 2 * time.Second, code: 137, reason: "OOMKilled"},
		"demo/broken:1": {},
		"demo/none:1":   {},
	}
}

func (m *model) running(name string) bool {
	c := m.containers[name]
	return c != nil && c.state == running
}

func (c *modelContainer) end(code int32, reason string) {
	if c.oom {
		reason = "OOMKilled"
	}
	c.state, c.code, c.reason = exited, code, reason
}

// tick advances the time and ends the containers whose programs exit.
func (m *model) tick(by time.Duration) {
	m.now += by
	for _, c := range m.containers {
		if p := modelPrograms()[c.image]; c.state == running && c.ends <= m.now {
			c.end(p.code, p.reason)
		}
	}
}

// kill ends a container that has not ended.
func (m *model) kill(name string, code int32) {
	switch c := m.containers[name]; {
	case c == nil:
	case c.state == running:
		c.end(code, modelReason(code))
	case c.state == unknown:
		c.end(255, "Unknown")
	}
}

func modelReason(code int32) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}

func (m *model) inPod(pod string) (names []string) {
	for name, c := range m.containers {
		if c.pod == pod {
			names = append(names, name)
		}
	}
	return names
}

func (m *model) run(pod string) codes.Code {
	if _, taken := m.pods[pod]; taken {
		return codes.FailedPrecondition
	}
	m.pods[pod] = true
	return codes.OK
}

func (m *model) create(pod, name, image string) codes.Code {
	ready, there := m.pods[pod]
	switch {
	case !there:
		return codes.NotFound
	case !ready:
		return codes.Unknown
	case m.containers[name] != nil:
		return codes.FailedPrecondition
	case image == "demo/none:1":
		return codes.NotFound
	}
	m.containers[name] = &modelContainer{pod: pod, image: image, state: created}
	return codes.OK
}

func (m *model) start(name string) codes.Code {
	c := m.containers[name]
	switch {
	case c == nil:
		return codes.NotFound
	case c.state != created:
		return codes.Unknown
	case !m.pods[c.pod] || c.image == "demo/broken:1":
		c.end(128, "StartError")
		return codes.Unknown
	}
	c.state, c.ends = running, m.now+modelPrograms()[c.image].ends
	return codes.OK
}

func (m *model) stopPod(pod string, code int32) codes.Code {
	for _, name := range m.inPod(pod) {
		m.kill(name, code)
	}
	if _, there := m.pods[pod]; there {
		m.pods[pod] = false
	}
	return codes.OK
}

func (m *model) removePod(pod string) codes.Code {
	for _, name := range m.inPod(pod) {
		delete(m.containers, name)
	}
	delete(m.pods, pod)
	return codes.OK
}

func (m *model) reboot() {
	for _, c := range m.containers {
		if c.state == running || c.state == unknown {
			c.oom = false
			c.end(255, "Unknown")
		}
	}
	for pod := range m.pods {
		m.pods[pod] = false
	}
}

// table returns the visible state, one line for each object.
func (m *model) table() (lines []string) {
	for pod, ready := range m.pods {
		lines = append(lines, fmt.Sprint(pod, " ", ready))
	}
	for name, c := range m.containers {
		reason := c.reason
		if c.state == running && c.oom {
			reason = "OOMKilled"
		}
		lines = append(lines, fmt.Sprint(name, " in ", c.pod, " ", c.state, " ", c.code, " ", reason))
	}
	slices.Sort(lines)
	return lines
}

// twin is a node on which the test does the same operations as on the model.
type twin struct {
	*bed
	ids map[string]string
}

func (w *twin) id(name string) string { return cmp.Or(w.ids[name], "unknown") }

func (w *twin) table() (lines []string) {
	w.t.Helper()
	names := map[string]string{}
	for name, id := range w.ids {
		names[id] = name
	}
	pods, err := w.ListPodSandbox(w.t.Context(), nil)
	require.NoError(w.t, err)
	for _, s := range pods {
		lines = append(lines, fmt.Sprint(names[s.GetId()], " ", s.GetState() == ready))
	}
	containers, err := w.ListContainers(w.t.Context(), nil)
	require.NoError(w.t, err)
	for _, c := range containers {
		st := w.status(c.GetId())
		require.Equal(w.t, c.GetState(), st.GetState())
		lines = append(lines, fmt.Sprint(names[c.GetId()], " in ", names[c.GetPodSandboxId()], " ", st.GetState(), " ", st.GetExitCode(), " ", st.GetReason()))
	}
	slices.Sort(lines)
	return lines
}

// both does the same random operation on the model and on the node. It returns
// the operation and both results. Operations without a CRI call, such as a
// kill, have no result.
func both(m *model, w *twin, rnd *rand.Rand) (what string, want codes.Code, got error) {
	ctx := w.t.Context()
	images := slices.Sorted(maps.Keys(modelPrograms()))
	podName, attempt := fmt.Sprint("pod", rnd.IntN(3)), rnd.Uint32N(2)
	pod, image := fmt.Sprint(podName, "#", attempt), images[rnd.IntN(len(images))]
	app, try := fmt.Sprint("app", rnd.IntN(2)), rnd.Uint32N(2)
	// The reserved name does not contain the pod's attempt, so all attempts of
	// a pod share it.
	name := fmt.Sprint(podName, "/", app, "#", try)
	switch op := rnd.IntN(26); {
	case op < 4:
		id, err := w.RunPodSandbox(ctx, podConfig(podName, attempt), "")
		if err == nil {
			w.ids[pod] = id
		}
		return "run " + pod, m.run(pod), err
	case op < 9:
		id, err := w.CreateContainer(ctx, w.id(pod), containerConfig(app, image, try), podConfig(podName, attempt))
		if err == nil {
			w.ids[name] = id
		}
		return "create " + name + " in " + pod, m.create(pod, name, image), err
	case op < 14:
		return "start " + name, m.start(name), w.StartContainer(ctx, w.id(name))
	case op < 16:
		m.kill(name, 137)
		return "stop " + name, codes.OK, w.StopContainer(ctx, w.id(name), 0)
	case op < 17:
		delete(m.containers, name)
		return "remove " + name, codes.OK, w.RemoveContainer(ctx, w.id(name))
	case op < 18:
		return "stop " + pod, m.stopPod(pod, 137), w.StopPodSandbox(ctx, w.id(pod))
	case op < 19:
		return "remove " + pod, m.removePod(pod), w.RemovePodSandbox(ctx, w.id(pod))
	case op < 22:
		by := time.Duration(rnd.Int64N(int64(time.Second)))
		m.tick(by)
		w.clock.Step(by)
		return "tick", codes.OK, nil
	default:
		return hook(m, w, rnd, name)
	}
}

// hook calls a hook of the node. A hook returns an error for a container that
// does not run.
func hook(m *model, w *twin, rnd *rand.Rand, name string) (what string, want codes.Code, got error) {
	runs, code := m.running(name), rnd.Int32N(3)
	var err error
	switch rnd.IntN(6) {
	case 0:
		what, err = "kill "+name, w.Kill(w.id(name), code)
		if runs {
			m.kill(name, code)
		}
	case 1:
		what, err = "oom "+name, w.OOMKill(w.id(name))
		if runs {
			m.containers[name].end(137, "OOMKilled")
		}
	case 2:
		what, err = "oom of a child "+name, w.OOMKillChild(w.id(name))
		if runs {
			m.containers[name].oom = true
		}
	case 3:
		what, err = "lose "+name, w.SetUnknown(w.id(name))
		if runs {
			c := m.containers[name]
			c.state, c.code, c.reason, c.oom = unknown, 255, "Unknown", false
		}
	case 4:
		what, err = "vanish "+name, w.RemoveSilently(w.id(name))
		runs = m.containers[name] != nil
		delete(m.containers, name)
	default:
		if rnd.IntN(4) == 0 {
			m.reboot()
			w.Reboot(0)
		}
		return "reboot", codes.OK, nil
	}
	if (err == nil) != runs {
		return what, codes.OK, fmt.Errorf("it should work: %v, error: %w", runs, err)
	}
	return what, codes.OK, nil
}

// TestNode_AgreesWithTheModel prints the seed and the history of a difference.
func TestNode_AgreesWithTheModel(t *testing.T) {
	const seeds, steps = 200, 120
	for seed := range uint64(seeds) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		m := &model{pods: map[string]bool{}, containers: map[string]*modelContainer{}}
		w := &twin{bed: newBed(t, func(c *fakecri.Config) { c.Record = false }), ids: map[string]string{}}
		var history []string
		for range steps {
			what, want, err := both(m, w, rnd)
			history = append(history, what)
			require.Equal(t, want, grpcstatus.Code(err), "seed %d, %v: %v", seed, history, err)
			require.Equal(t, m.table(), w.table(), "seed %d, %v", seed, history)
		}
	}
}
