package status

import (
	"maps"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const statusDoc = "status/doc.go"

type (
	generateRule  = judge.Rule[*generateWorld]
	generateScene = judge.Scene[*generateWorld]
)

// generateRules returns two kinds of rules. Rules about one fact compute our value. The
// others change the kubelet's input: our value must equal the kubelet's result for the
// changed input. In this way they also explain the consequences of a difference, such as
// another phase.
func generateRules(k *kubeRuntime) []generateRule {
	changes := slices.Concat(containerChanges(), probeChanges(), restartAllChanges(), addressChanges())
	rules := factRules()
	alone := slices.Clone(rules)
	for i := range rules {
		rules[i].Explains = besides(k, changes, alone, i)
	}
	for i := range changes {
		rules = append(rules, changes[i].rule(k, changes))
	}
	return rules
}

// An input is the kubelet's input for a status.
type input struct {
	w    *generateWorld
	ours judge.Facts
	step generateStep
	turn generateTurn
}

// A change changes the kubelet's input so that the kubelet generates our status. It reports
// whether it changed anything.
type change struct {
	name, sentence string
	class          judge.Class
	apply          func(*input) bool
	only           string // prefix of the facts that it explains
}

func (c change) rule(k *kubeRuntime, all []change) generateRule {
	r := generateRule{Name: c.name, Class: c.class, Sentence: c.sentence, Doc: statusDoc}
	r.Explains = func(s generateScene) bool {
		turn := &s.World.Turns[s.Step]
		turn.prepare()
		if !strings.HasPrefix(s.Fact, c.only) {
			return false
		}
		return slices.Contains(turn.fewest(k, s, all), c.name)
	}
	return r
}

// fewest returns the smallest set of changes that makes the kubelet's fact equal to ours, and
// among sets of equal size the first one.
func (turn *generateTurn) fewest(k *kubeRuntime, s generateScene, all []change) (best []string) {
	applicable := turn.applicable(s, all)
	for set := uint(1); set < 1<<len(applicable); set++ {
		if best != nil && bits.OnesCount(set) >= len(best) {
			continue
		}
		var names []string
		for i, name := range applicable {
			if set&(1<<i) != 0 {
				names = append(names, name)
			}
		}
		if alike(turn.changed(k, s, all, names)[s.Fact], s.Ours) {
			best = names
		}
	}
	return best
}

// besides returns the predicate of rule n, which is about single facts. A difference may have
// two causes: a change of the input, and a rule. So if no rule explains the difference alone,
// the predicate tries rule n on the kubelet's result for the changed input.
func besides(k *kubeRuntime, all []change, rules []generateRule, n int) func(generateScene) bool {
	return func(s generateScene) bool {
		turn := &s.World.Turns[s.Step]
		turn.prepare()
		alone, known := turn.alone[s.Fact]
		if !known {
			alone = slices.IndexFunc(rules, func(r generateRule) bool { return r.Explains(s) })
			turn.alone[s.Fact] = alone
		}
		if alone >= 0 {
			return alone == n
		}
		facts := turn.changed(k, s, all, turn.applicable(s, all))
		if facts[s.Fact] == s.Kubelet {
			return false
		}
		s.Kubelet, s.KubeletFacts = facts[s.Fact], slices.Clone(s.KubeletFacts)
		s.KubeletFacts[s.Step] = facts
		return rules[n].Explains(s)
	}
}

func (turn *generateTurn) prepare() {
	if turn.facts == nil {
		turn.facts, turn.alone = map[string]judge.Facts{}, map[string]int{}
	}
}

// alike reports whether two values are equal except for differences with separate rules:
// where a message is truncated, and that our message names all reasons of a rejection.
func alike(kubelet, ours string) bool {
	first, _, _ := strings.Cut(ours, "\n")
	return kubelet == ours || kubelet != "" && kubelet == first || cutWithinRune(kubelet, ours)
}

// applicable returns the names of the changes that apply to a fact of a step.
func (turn *generateTurn) applicable(s generateScene, all []change) (names []string) {
	if turn.names == nil {
		turn.names = map[string]bool{}
		for _, c := range all {
			turn.names[c.name] = c.apply(newInput(s))
		}
	}
	for _, c := range all {
		if turn.names[c.name] && strings.HasPrefix(s.Fact, c.only) {
			names = append(names, c.name)
		}
	}
	return names
}

// changed returns the kubelet's result for a changed input.
func (turn *generateTurn) changed(k *kubeRuntime, s generateScene, all []change, names []string) judge.Facts {
	key := strings.Join(names, "+")
	if f, known := turn.facts[key]; known {
		return f
	}
	in := newInput(s)
	for _, c := range all {
		if slices.Contains(names, c.name) {
			c.apply(in)
		}
	}
	status := in.generate(k)
	turn.facts[key] = generateFacts(turn, &status)
	return turn.facts[key]
}

func newInput(s generateScene) *input {
	in := &input{w: s.World, ours: s.OursFacts[s.Step], step: s.World.Steps[s.Step], turn: s.World.Turns[s.Step]}
	in.step.Sandboxes = cloneAll(in.step.Sandboxes)
	in.step.Containers = nil
	for _, c := range s.World.Steps[s.Step].Containers {
		in.step.Containers = append(in.step.Containers, runtimeContainer{c.Sandbox, clone(c.Status)})
	}
	in.step.Waiting, in.step.Probes = maps.Clone(in.step.Waiting), maps.Clone(in.step.Probes)
	in.step.Actuated = maps.Clone(in.step.Actuated)
	in.turn.Pod = in.turn.Pod.DeepCopy()
	in.turn.Before = *in.turn.Before.DeepCopy()
	return in
}

// generate runs the kubelet's status generation for in.
func (in *input) generate(k *kubeRuntime) corev1.PodStatus {
	a := newAgent(in.w)
	set(a.kubelet, "statusManager", remembered{a.statuses, in.turn.Before})
	set(a.prober, "start", in.turn.Began)
	return a.turn(k, &in.step, &in.turn)
}

// remembered is a status manager that has reported a status of a pod.
type remembered struct {
	kubeletstatus.Manager
	status corev1.PodStatus
}

func (r remembered) GetPodStatus(types.UID) (corev1.PodStatus, bool) {
	return r.status, true
}

// A subject is one container of an input.
type subject struct {
	spec   corev1.Container
	kind   string // init, container or ephemeral
	newest *runtimeapi.ContainerStatus
	second *runtimeapi.ContainerStatus
	old    *corev1.ContainerStatus
}

// id returns the newest container's ID in the form of a status.
func (s subject) id() string { return runtimeName + "://" + s.newest.GetId() }

// is reports whether the newest container is in a state.
func (s subject) is(state runtimeapi.ContainerState) bool {
	return s.newest != nil && s.newest.State == state
}

// same reports whether the newest container is the one of the previous status.
func (s subject) same() bool { return s.newest != nil && s.old != nil && s.old.ContainerID == s.id() }

// end returns the exit code of the container, or nil if it has not ended or the code is
// unknown.
func (s subject) end() *int32 {
	switch {
	case s.newest == nil && s.old != nil && s.old.State.Terminated != nil, s.is(unknownState) && s.same() && s.old.State.Terminated != nil:
		return &s.old.State.Terminated.ExitCode
	case s.is(exitedState) && !podcache.StartInterrupted(s.newest):
		return &s.newest.ExitCode
	case s.is(unknownState) && s.old != nil && s.old.State.Running != nil:
		return new(int32(137))
	default:
		return nil
	}
}

// final reports whether the container has ended and must not be restarted.
func (s subject) final(pod *corev1.Pod) bool {
	end := s.end()
	plainInit := s.kind == "init" && !podutil.IsRestartableInitContainer(&s.spec)
	return end != nil && (s.kind == "ephemeral" || plainInit && *end == 0 || !podutil.ContainerShouldRestart(s.spec, pod.Spec, *end))
}

const (
	runningState = runtimeapi.ContainerState_CONTAINER_RUNNING
	exitedState  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknownState = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// subjects returns the containers of a pod.
func (in *input) subjects() (all []subject) {
	spec, before := &in.turn.Pod.Spec, &in.turn.Before
	add := func(kind string, c corev1.Container, old []corev1.ContainerStatus) {
		s := subject{spec: c, kind: kind}
		for _, seen := range in.step.Containers {
			switch {
			case seen.Status.Metadata.Name != c.Name:
			case s.newest == nil:
				s.newest = seen.Status
			case s.second == nil:
				s.second = seen.Status
			}
		}
		for i := range old {
			if old[i].Name == c.Name {
				s.old = &old[i]
			}
		}
		all = append(all, s)
	}
	for _, c := range spec.InitContainers {
		add("init", c, before.InitContainerStatuses)
	}
	for _, c := range spec.Containers {
		add("container", c, before.ContainerStatuses)
	}
	for _, c := range spec.EphemeralContainers {
		add("ephemeral", corev1.Container(c.EphemeralContainerCommon), before.EphemeralContainerStatuses)
	}
	return all
}

// each applies a change to each container and reports whether one applied.
func (in *input) each(apply func(subject) bool) (applied bool) {
	for _, s := range in.subjects() {
		if apply(s) {
			applied = true
		}
	}
	return applied
}

// remove removes a container from the runtime.
func (in *input) remove(c *runtimeapi.ContainerStatus) {
	in.step.Containers = slices.DeleteFunc(in.step.Containers, func(r runtimeContainer) bool { return r.Status == c })
}

// removeOlder removes the predecessors of a container from the runtime.
func (in *input) removeOlder(c *runtimeapi.ContainerStatus) {
	in.step.Containers = slices.DeleteFunc(in.step.Containers, func(r runtimeContainer) bool {
		return r.Status != c && r.Status.Metadata.Name == c.Metadata.Name
	})
}
