package podrunner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// TestPlanKeepsItsPromises makes plans for situations at random, most of which no
// sane runtime shows. One that fails is printed as a case for testdata/plan.
func TestPlanKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 2))
		text := randomSituation(random)
		s := newSituation(t, &datadriven.TestData{Cmd: "plan", Input: text})
		s.pod.Spec.RestartPolicy = randomPolicy(random)
		before := s.pod.DeepCopy()
		p := plan{T: t, situation: s}
		p.Actions = podrunner.Plan(podrunner.Input{Pod: s.pod, Status: s.status, Backoff: s.until})
		p.about = fmt.Sprintf("seed %d\nplan policy=%s\n%s----\n%s", seed, s.pod.Spec.RestartPolicy, text, p.Actions)
		p.checkStops()
		p.checkStarts()
		p.checkRemovals()
		require.Equal(t, before, s.pod, p.about)
	}
}

func randomPolicy(random *rand.Rand) corev1.RestartPolicy {
	return pick(random, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// randomSituation returns one in the words of testdata/plan.
func randomSituation(random *rand.Rand) string {
	var b strings.Builder
	line := func(words ...any) { fmt.Fprintln(&b, words...) }
	names := []string{"gone"}
	for _, name := range []string{"init a", "init b", "x", "y"} {
		if name != "x" && random.IntN(3) == 0 {
			continue
		}
		line("spec", name, pick(random, "", "", "never", "onfailure", "always", "never restart-on 1"))
		names = append(names, strings.TrimPrefix(name, "init "))
	}
	boxes := random.IntN(3)
	for i := range boxes {
		line("sandbox", boxes-1-i, pick(random, "ready", "ready", "ready", "notready", "ready noip", "ready hostnetwork"))
	}
	for _, name := range names {
		for count := range random.IntN(4) {
			in := ""
			if boxes > 0 {
				in = fmt.Sprint("in ", random.IntN(boxes))
			}
			state := pick(random, "created", "running", "running", "exited 0", "exited 1", "exited 0", "unknown", "weird")
			line(name, count, state, in, pick(random, "", "", "", "old", "nohash"))
		}
		if random.IntN(4) == 0 {
			line("backoff", name, "20s")
		}
	}
	if random.IntN(4) == 0 {
		line("backoff sandbox 10s")
	}
	return b.String()
}

// plan is one to look at.
type plan struct {
	*testing.T
	*situation
	podrunner.Actions

	about string
}

// usable says whether the newest sandbox can be used.
func (p *plan) usable() bool {
	ready := 0
	for _, s := range p.status.Sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	newest := p.status.ReadySandbox()
	return newest != nil && ready == 1 && newest.GetNetwork().GetIp() != "" &&
		newest.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_POD
}

// serves says whether s runs, is the newest of its name in a usable sandbox, and
// is what the spec asks for.
func (p *plan) serves(s *runtimeapi.ContainerStatus) bool {
	name := podcache.ContainerName(s)
	for c := range podspec.Containers(&p.pod.Spec) {
		if c.Name == name {
			hash := s.GetAnnotations()[crilabels.Hash]
			return p.usable() && p.status.Active(name) == s && running(s) && (hash == "" || hash == podspec.ContainerHash(c))
		}
	}
	return false
}

func running(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func mayRun(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED && s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED
}

func (p *plan) byID(id string) *runtimeapi.ContainerStatus {
	i := slices.IndexFunc(p.status.Containers, func(c *runtimeapi.ContainerStatus) bool { return c.GetId() == id })
	require.GreaterOrEqual(p, i, 0, p.about)
	return p.status.Containers[i]
}

// checkStops: what serves is left alone, but in a pod whose initialization failed
// for good; everything else that may run is stopped, and once.
func (p *plan) checkStops() {
	killed := map[string]bool{}
	for _, k := range p.Kill {
		require.False(p, killed[k.ID], p.about)
		killed[k.ID] = true
	}
	for _, s := range p.status.Containers {
		switch {
		case !mayRun(s):
			require.False(p, killed[s.GetId()], p.about)
		case p.StopPod != "":
			if p.serves(s) {
				require.Contains(p, p.StopPod, "init container", p.about)
			}
		case p.serves(s):
			require.False(p, killed[s.GetId()], "%s\n%s", s.GetId(), p.about)
		case !p.isInit(s): // whose turn may be over, or not have come
			require.True(p, killed[s.GetId()], "%s\n%s", s.GetId(), p.about)
		}
	}
	if p.CreateSandbox != "" {
		require.False(p, p.usable(), p.about)
		require.Equal(p, p.somethingIsThere(), p.StopPod != "", p.about)
	}
}

// isInit says whether s is the newest of an init container in the sandbox in use.
func (p *plan) isInit(s *runtimeapi.ContainerStatus) bool {
	return slices.ContainsFunc(p.pod.Spec.InitContainers, func(c corev1.Container) bool { return p.status.Active(c.Name) == s })
}

func (p *plan) somethingIsThere() bool {
	return len(p.status.Sandboxes) > 0 || slices.ContainsFunc(p.status.Containers, mayRun)
}

// checkStarts: one start a name, with a new attempt; init containers alone; and
// nothing whose policy forbids it, nor anything while init containers are to run.
func (p *plan) checkStarts() {
	started := map[string]bool{}
	for _, s := range p.Start {
		require.False(p, started[s.Name], p.about)
		started[s.Name] = true
		require.NotContains(p, p.Waiting, s.Name, p.about)
		require.True(p, p.usable() || p.CreateSandbox != "", p.about)
		for _, c := range p.status.Containers {
			if podcache.ContainerName(c) != s.Name || p.removes(c.GetId()) {
				continue
			}
			if s.ID == c.GetId() {
				require.Equal(p, runtimeapi.ContainerState_CONTAINER_CREATED, c.GetState(), p.about)
				continue
			}
			require.Greater(p, int(s.Attempt), podcache.RestartCount(c), p.about)
		}
		p.checkPolicy(s)
		if s.Init {
			require.Len(p, p.Start, 1, p.about)
		} else {
			require.True(p, p.initialized(), p.about)
		}
	}
}

func (p *plan) checkPolicy(s podrunner.Start) {
	last := p.status.Container(s.Name)
	if last == nil || last.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	for c, init := range podspec.Containers(&p.pod.Spec) {
		if c.Name != s.Name {
			continue
		}
		again := podspec.ShouldRestart(p.pod, c, last.GetExitCode())
		if init && last.GetExitCode() == 0 { // in another sandbox only
			again = !p.usable() || p.status.Active(s.Name) == nil
		}
		require.True(p, again, "%s\n%s", s.Name, p.about)
	}
}

// initialized says whether a regular container may start: one was made in this
// sandbox before, or the last init container ended well.
func (p *plan) initialized() bool {
	all := p.pod.Spec.InitContainers
	if len(all) == 0 {
		return true
	}
	if !p.usable() {
		return false
	}
	last := p.status.Active(all[len(all)-1].Name)
	return last.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && last.GetExitCode() == 0 ||
		slices.ContainsFunc(p.pod.Spec.Containers, func(c corev1.Container) bool { return p.status.Active(c.Name) != nil })
}

func (p *plan) removes(id string) bool {
	return slices.ContainsFunc(p.Remove, func(r podrunner.Remove) bool { return r.ID == id })
}

// checkRemovals: only the dead, each once, and never the newest that the spec
// names but to make it anew; no sandbox that is ready, the newest, or holds what
// stays.
func (p *plan) checkRemovals() {
	removed := map[string]bool{}
	for _, r := range p.Remove {
		require.False(p, removed[r.ID], p.about)
		removed[r.ID] = true
	}
	for _, r := range p.Remove {
		if !r.Sandbox {
			require.False(p, mayRun(p.byID(r.ID)), p.about)
			require.False(p, slices.ContainsFunc(p.Start, func(s podrunner.Start) bool { return s.ID == r.ID }), p.about)
			if r.Name != "gone" && p.status.Container(r.Name) == p.byID(r.ID) && slices.Contains(p.specNames(), r.Name) {
				require.Equal(p, runtimeapi.ContainerState_CONTAINER_CREATED, p.byID(r.ID).GetState(), p.about)
			}
			continue
		}
		require.NotEqual(p, p.status.Sandboxes[0].GetId(), r.ID, p.about)
		for _, c := range p.status.Containers {
			require.True(p, p.status.SandboxOf[c.GetId()] != r.ID || removed[c.GetId()], p.about)
		}
	}
}

func (p *plan) specNames() (names []string) {
	for c := range podspec.Containers(&p.pod.Spec) {
		names = append(names, c.Name)
	}
	return names
}
