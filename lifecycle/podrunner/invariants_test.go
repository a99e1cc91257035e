package podrunner_test

import (
	"cmp"
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

// TestPlan_Invariants makes plans for random situations, most of which cannot occur in a real
// runtime. A failing situation is printed as a case for testdata/plan.
func TestPlan_Invariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5000) {
		checkPlan(t, seed)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(checkPlan)
}

func checkPlan(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	text := randomSituation(random)
	s := newSituation(t, &datadriven.TestData{Cmd: "plan", Input: text})
	s.pod.Spec.RestartPolicy = randomPolicy(random)
	before := s.pod.DeepCopy()
	p := plan{T: t, situation: s}
	p.Actions = podrunner.Plan(s.input())
	p.about = fmt.Sprintf("seed %d\nplan policy=%s\n%s----\n%s", seed, s.pod.Spec.RestartPolicy, text, p.Actions)
	p.checkStops()
	p.checkStarts()
	p.checkRemovals()
	p.checkRestartAll()
	p.checkUpdates()
	require.Equal(t, before, s.pod, p.about)
}

func randomPolicy(random *rand.Rand) corev1.RestartPolicy {
	return pick(random, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// randomSituation returns a situation in the format of testdata/plan.
func randomSituation(random *rand.Rand) string {
	var b strings.Builder
	line := func(words ...any) { fmt.Fprintln(&b, words...) }
	names := []string{"gone"}
	for _, name := range []string{"init a", "sidecar s", "init b", "sidecar t", "ephemeral e", "x", "y"} {
		if name != "x" && random.IntN(3) == 0 {
			continue
		}
		policy := pick(random, "", "", "never", "onfailure", "always", "never restart-on 1", "never restart-all-on 2")
		if strings.HasPrefix(name, "sidecar") {
			policy = pick(random, "", "", "", "restart-all-on 2")
		}
		if strings.HasPrefix(name, "ephemeral") {
			policy = ""
		}
		line("spec", name, policy, pick(random, "", "", "startup", "liveness", "startup liveness"),
			pick(random, "", "", "memory=100 quota=100 shares=100"), pick(random, "", "", "restart-for cpu"))
		names = append(names, name[strings.LastIndex(name, " ")+1:])
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
			state := pick(random, "created", "broken-off", "running", "running", "running", "exited 0", "exited 1", "exited 0", "exited 2", "unknown", "weird")
			line(name, count, state, in, pick(random, "", "", "", "old", "nohash", "kubelet", "kubelet-other"),
				pick(random, "", "started", "started", "startup-failed", "liveness-failed"),
				pick(random, "", "memory=100 quota=100 shares=100", "memory=200 quota=100 shares=100", "memory=200 quota=50 shares=100"))
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

// plan is a plan to check.
type plan struct {
	*testing.T
	*situation
	podrunner.Actions

	about string
}

// usable reports whether the newest sandbox can be used.
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

// serves reports whether s runs, is the newest instance of its name in a usable
// sandbox, and matches the spec.
func (p *plan) serves(s *runtimeapi.ContainerStatus) bool {
	c := p.specOf(s)
	if c == nil || !p.usable() || p.here(c.Name) != s || !running(s) {
		return false
	}
	if p.kindOf(c.Name) == podrunner.Ephemeral {
		return true
	}
	hash, probes := s.GetAnnotations()[crilabels.Definition], p.probes[s.GetId()]
	switch {
	case p.kindOf(c.Name) == podrunner.Init:
		return true
	case p.kindOf(c.Name) == podrunner.Sidecar && c.StartupProbe != nil && !probes.Started:
		return !probes.StartupFailed
	}
	if hash == "" { // a kubelet or an unknown agent created the container
		hash = cmp.Or(s.GetAnnotations()[crilabels.Hash], podspec.KubeletHash(c))
		if hash == podspec.KubeletHash(c) {
			hash = podspec.ContainerHash(c)
		}
	}
	return hash == podspec.ContainerHash(c) && (c.LivenessProbe == nil || !probes.LivenessFailed) &&
		(c.StartupProbe == nil || !probes.StartupFailed) && !p.resizeRestarts(c, s)
}

// resizeRestarts reports whether a resize restarts c. The only resize policy in
// these situations is "restart-for cpu".
func (p *plan) resizeRestarts(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	want, has := p.wanted[c.Name], s.GetResources().GetLinux()
	return p.kindOf(c.Name) != podrunner.Init && want != nil && has != nil && len(c.ResizePolicy) > 0 && want.CpuQuota != has.CpuQuota
}

func (p *plan) specOf(s *runtimeapi.ContainerStatus) *corev1.Container {
	for _, c := range p.allSpecs() {
		if c.Name == podcache.ContainerName(s) {
			return c
		}
	}
	return nil
}

// kindOf returns the kind of a container by its name, because randomSituation
// names containers by kind. The restart policy decides whether an init
// container is a sidecar.
func (p *plan) kindOf(name string) podrunner.ContainerKind {
	for _, c := range p.pod.Spec.InitContainers {
		if c.Name == name && podspec.IsSidecar(&c) {
			return podrunner.Sidecar
		}
	}
	switch name {
	case "a", "b":
		return podrunner.Init
	case "e":
		return podrunner.Ephemeral
	default:
		return podrunner.Regular
	}
}

func running(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func mayRun(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED && s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED
}

// here returns the newest container with the given name if this container is in
// the newest sandbox.
func (p *plan) here(name string) *runtimeapi.ContainerStatus {
	if c := p.status.Container(name); p.status.Active(name) == c {
		return c
	}
	return nil
}

func (p *plan) byID(id string) *runtimeapi.ContainerStatus {
	i := slices.IndexFunc(p.status.Containers, func(c *runtimeapi.ContainerStatus) bool { return c.GetId() == id })
	require.GreaterOrEqual(p, i, 0, p.about)
	return p.status.Containers[i]
}

// checkStops checks that running containers that match the spec are not stopped, except in a
// terminated pod or during a restart of all containers. All other containers that may be
// running must be stopped once.
func (p *plan) checkStops() {
	killed := map[string]bool{}
	for _, k := range p.Kill {
		require.False(p, killed[k.ID], p.about)
		killed[k.ID] = true
		require.Equal(p, p.restartsAll(), k.Cause == podrunner.CauseRestartAll, p.about)
	}
	for _, s := range p.status.Containers {
		switch kind := p.kindOf(podcache.ContainerName(s)); {
		case !mayRun(s):
			require.False(p, killed[s.GetId()], p.about)
		case p.restartsAll():
			require.Equal(p, kind != podrunner.Ephemeral, killed[s.GetId()], p.about)
		case p.StopPod != "":
			if p.serves(s) && (kind == podrunner.Regular || kind == podrunner.Init) {
				require.Contains(p, p.StopPod, "init container", p.about)
			}
		case p.serves(s):
			require.False(p, killed[s.GetId()], "%s\n%s", s.GetId(), p.about)
		case !p.isPassive(s):
			require.True(p, killed[s.GetId()], "%s\n%s", s.GetId(), p.about)
		}
	}
	if p.CreateSandbox != "" {
		require.False(p, p.usable(), p.about)
		require.Equal(p, p.somethingIsThere(), p.StopPod != "", p.about)
	}
}

// restartsAll reports whether the end of a container restarts all containers
// now.
func (p *plan) restartsAll() bool {
	return p.usable() && (slices.ContainsFunc(p.pod.Spec.InitContainers, p.asksForAll) ||
		slices.ContainsFunc(p.pod.Spec.Containers, p.asksForAll))
}

func (p *plan) asksForAll(c corev1.Container) bool {
	s := p.status.Container(c.Name)
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && s.GetExitCode() == 2 &&
		slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return r.ExitCodes.Values[0] == 2 })
}

// isPassive reports whether a plan need not stop s although s may be running: the newest
// instance of an init container other than the current init container, an ephemeral container,
// and a regular container in an unknown state, which is stopped when it is started again.
func (p *plan) isPassive(s *runtimeapi.ContainerStatus) bool {
	c := p.specOf(s)
	if c == nil || p.here(c.Name) != s {
		return false
	}
	kind := p.kindOf(c.Name)
	return kind == podrunner.Init || kind == podrunner.Ephemeral || kind == podrunner.Regular && !running(s)
}

func (p *plan) somethingIsThere() bool {
	return len(p.status.Sandboxes) > 0 || slices.ContainsFunc(p.status.Containers, mayRun)
}

// checkRestartAll checks that everything except ephemeral containers is removed, and that the
// container which requested the restart is removed last.
func (p *plan) checkRestartAll() {
	if !p.restartsAll() {
		require.Nil(p, p.RestartAll, p.about)
		return
	}
	require.Empty(p, p.Start, p.about)
	if p.RestartAll == nil {
		require.False(p, p.RetryAt.IsZero(), p.about)
		return
	}
	left := len(p.status.Containers)
	for _, c := range p.status.Containers {
		if p.kindOf(podcache.ContainerName(c)) == podrunner.Ephemeral {
			left--
		}
	}
	require.Len(p, p.Remove, left, p.about)
	last := p.Remove[len(p.Remove)-1]
	require.True(p, p.asksForAll(*p.specOf(p.byID(last.ID))), p.about)
}

// checkStarts checks that each name is started at most once, with a new attempt; that init
// containers and sidecars start in order; that an ephemeral container starts once; and that
// no container starts whose policy forbids a restart.
func (p *plan) checkStarts() {
	started := map[string]bool{}
	for _, s := range p.Start {
		require.False(p, started[s.Name], p.about)
		started[s.Name] = true
		require.NotContains(p, p.Waiting, s.Name, p.about)
		require.True(p, p.usable() || p.CreateSandbox != "", p.about)
		require.Equal(p, p.kindOf(s.Name), s.Kind, p.about)
		for _, c := range p.status.Containers {
			if podcache.ContainerName(c) != s.Name || p.removes(c.GetId()) {
				continue
			}
			if s.ID == c.GetId() {
				require.Equal(p, runtimeapi.ContainerState_CONTAINER_CREATED, c.GetState(), p.about)
				continue
			}
			require.Greater(p, int(s.Attempt), podcache.RestartCount(c), p.about)
			require.True(p, s.Kind != podrunner.Ephemeral || neverRan(c), p.about)
		}
		p.checkPolicy(s)
		p.checkTurn(s)
	}
}

// checkTurn checks that a container starts only after all init containers before it in the
// spec have succeeded or started, unless the pod was initialized before.
func (p *plan) checkTurn(s podrunner.Start) {
	all := p.pod.Spec.InitContainers
	at, turn := len(all), -1
	for i := range all {
		if all[i].Name == s.Name {
			at = i
		}
		if p.usable() && p.here(all[i].Name) != nil {
			turn = i
		}
	}
	made := p.usable() && slices.ContainsFunc(p.pod.Spec.Containers, func(c corev1.Container) bool {
		s := p.here(c.Name)
		return s != nil && (running(s) || neverRan(s))
	})
	switch {
	case s.Kind == podrunner.Ephemeral, made && s.Kind != podrunner.Init:
	case made:
		require.Fail(p, "an init container starts in an initialized pod", p.about)
	case s.Kind == podrunner.Init:
		require.GreaterOrEqual(p, at, turn, p.about)
		fallthrough
	default:
		for i := max(turn, 0); i < at; i++ {
			require.True(p, p.ready(&all[i]), "%s before %s\n%s", s.Name, all[i].Name, p.about)
		}
	}
}

func (p *plan) ready(c *corev1.Container) bool {
	if !p.usable() {
		return false
	}
	s := p.here(c.Name)
	if podspec.IsSidecar(c) {
		return s != nil && running(s) && (c.StartupProbe == nil || p.probes[s.GetId()].Started)
	}
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && s.GetExitCode() == 0
}

// checkUpdates checks that only containers that continue to run are resized, to the desired
// values.
func (p *plan) checkUpdates() {
	for _, u := range p.Update {
		s := p.byID(u.ID)
		require.True(p, p.serves(s) || p.probes[s.GetId()].StartupFailed, p.about)
		require.NotEqual(p, podrunner.Ephemeral, p.kindOf(u.Name), p.about)
		require.False(p, slices.ContainsFunc(p.Kill, func(k podrunner.Kill) bool { return k.ID == u.ID }), p.about)
	}
}

func neverRan(c *runtimeapi.ContainerStatus) bool {
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED || podcache.StartInterrupted(c)
}

func (p *plan) checkPolicy(s podrunner.Start) {
	last := p.status.Container(s.Name)
	if s.Kind == podrunner.Ephemeral || last == nil || last.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || podcache.StartInterrupted(last) {
		return
	}
	for c, init := range podspec.Containers(&p.pod.Spec) {
		if c.Name != s.Name {
			continue
		}
		again := podspec.ShouldRestart(p.pod, c, last.GetExitCode())
		if init && !podspec.IsSidecar(c) && last.GetExitCode() == 0 { // in another sandbox only
			again = !p.usable() || p.here(s.Name) == nil
		}
		require.True(p, again, "%s\n%s", s.Name, p.about)
	}
}

func (p *plan) removes(id string) bool {
	return slices.ContainsFunc(p.Remove, func(r podrunner.Remove) bool { return r.ID == id })
}

// checkRemovals checks the removals of a plan that does not restart all
// containers. Only dead containers are removed, each once, and the newest
// instance of a container in the spec only if a new instance is created. No
// sandbox is removed that is ready, is the newest, or contains a container that
// is not removed.
func (p *plan) checkRemovals() {
	removed := map[string]bool{}
	for _, r := range p.Remove {
		require.False(p, removed[r.ID], p.about)
		removed[r.ID] = true
	}
	if p.RestartAll != nil {
		return
	}
	for _, r := range p.Remove {
		if !r.Sandbox {
			require.False(p, mayRun(p.byID(r.ID)), p.about)
			require.False(p, slices.ContainsFunc(p.Start, func(s podrunner.Start) bool { return s.ID == r.ID }), p.about)
			if r.Name != "gone" && p.status.Container(r.Name) == p.byID(r.ID) && slices.Contains(p.specNames(), r.Name) {
				require.True(p, neverRan(p.byID(r.ID)), p.about)
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
	for _, c := range p.allSpecs() {
		names = append(names, c.Name)
	}
	return names
}
