package prober

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const podUID types.UID = "uid-1"

const kinds = 3

// A world is one pod and its events.
type world struct {
	Policy     corev1.RestartPolicy
	Containers []container
	Steps      []step
	Errors     prober.ErrorPolicy
	Quiet      bool // our manager records events on changes only
	Unready    bool // our manager reports the pod as unready when the termination begins
}

// A container is a container of the pod's spec.
type container struct {
	Name    string
	Init    bool
	Sidecar bool
	Policy  *corev1.ContainerRestartPolicy
	Rule    *corev1.ContainerRestartRule
	Probes  [kinds]*probe
}

// A probe is a probe of a container.
type probe struct {
	Delay, Timeout, Success, Failure int32
}

// op is the event of a step.
type op string

const (
	opProbe   op = "probe" // run a probe
	opAll     op = "probe all"
	opCreate  op = "create"  // a new container is created, and not yet running
	opStart   op = "start"   // a created container is started; if it ran before, a new container is started
	opReplace op = "replace" // a new container runs, and the end of the old one was not observed
	opExit    op = "exit"
	opUnknown op = "container state unknown"
	opLose    op = "container lost" // the container is removed from the runtime
	opPhase   op = "phase"
	opForget  op = "pod state unknown" // in this step
	opAdd     op = "add"
	opDelete  op = "delete" // the pod gets a deletion timestamp
	opStop    op = "stop"   // StopLivenessAndStartup
	opRemove  op = "remove"
	opCleanup op = "cleanup"
	opPublish op = "publish" // the status is sent to the API server
	opRestart op = "restart" // the agent restarts
	opRefresh op = "refresh"
)

// A step is one event after a pause.
type step struct {
	Op        op
	After     time.Duration
	Container int
	Kind      prober.Kind
	Outcome   outcome
	Code      int32
	Phase     corev1.PodPhase
	Keep      bool // for cleanup: keeps the pod
	Others    int  // for cleanup: number of other pods; the first is kept
	NoSync    bool // AddPod is not called after the step
}

// An outcome is the result of a command.
type outcome string

const (
	succeeds outcome = "succeeds"
	fails    outcome = "fails"
	hangs    outcome = "times out"
	breaks   outcome = "cannot be run"
	missing  outcome = "is not found"
)

// hang is the duration of a run whose command hangs. Steps without the run last as long.
const hang = 4 * time.Second

func drawWorld(d *judge.Draw) world {
	w := world{
		Policy: judge.Pick(d, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
		Errors: prober.IgnoreErrors,
	}
	if d.Chance(5) {
		w.Errors = judge.Pick(d, prober.CountNotFound, prober.CountErrors)
	}
	w.Quiet = d.Chance(10)
	w.Unready = !w.Quiet && d.Chance(5)
	for i := range d.Between(1, 3) {
		w.Containers = append(w.Containers, drawContainer(d, i))
	}
	for i := range w.Containers {
		w.Steps = append(w.Steps, step{Op: opStart, Container: i})
	}
	for range d.Between(1, 25) {
		w.Steps = append(w.Steps, drawStep(d, len(w.Containers)))
		if d.Chance(2) {
			w.Steps = append(w.Steps, createdAndSeen(d, len(w.Containers))...)
		}
	}
	return w
}

// createdAndSeen returns the steps of a container that is observed before it runs.
func createdAndSeen(d *judge.Draw, containers int) []step {
	i := d.Int(containers)
	return []step{{Op: opCreate, Container: i}, {Op: opRefresh}, {Op: opStart, Container: i, After: 5 * time.Second}, {Op: opAll, Outcome: succeeds}}
}

func drawContainer(d *judge.Draw, i int) container {
	c := container{Name: string(rune('a' + i))}
	if i > 0 {
		c.Sidecar = d.Chance(25)
		c.Init = c.Sidecar || d.Chance(5)
	}
	if !c.Init && d.Chance(15) {
		c.Policy = new(judge.Pick(d, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever))
		if d.Chance(50) {
			c.Rule = &corev1.ContainerRestartRule{
				Action: judge.Pick(d, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
					Operator: judge.Pick(d, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn),
					Values:   []int32{int32(d.Int(3))},
				},
			}
		}
	}
	for k := range c.Probes {
		c.Probes[k] = judge.Maybe(d, 60, func() probe { return drawProbe(d, prober.Kind(k)) })
	}
	return c
}

func drawProbe(d *judge.Draw, k prober.Kind) probe {
	p := probe{Timeout: int32(d.Between(1, 3)), Success: 1, Failure: 1}
	if d.Chance(40) {
		p.Failure = int32(d.Between(1, 4))
	}
	if k == prober.Readiness && d.Chance(40) {
		p.Success = int32(d.Between(1, 3))
	}
	if d.Chance(25) {
		p.Delay = int32(d.Between(1, 30))
	}
	return p
}

func drawStep(d *judge.Draw, containers int) step {
	s := step{
		Op: judge.Pick(d, opProbe, opProbe, opProbe, opProbe, opProbe, opProbe, opAll, opAll, opAll, opAll, opAll, opAll,
			opStart, opStart, opExit, opExit, opPublish),
		Container: d.Int(containers), Kind: prober.Kind(d.Int(kinds)),
		Outcome: judge.Pick(d, succeeds, succeeds, fails),
		After:   time.Duration(d.Int(20)) * 500 * time.Millisecond,
		Phase:   corev1.PodRunning,
	}
	if d.Chance(3) {
		s.After += 4 * time.Minute
	}
	if d.Chance(20) {
		s.Op = judge.Pick(d, opCreate, opAdd, opRefresh, opRestart, opUnknown, opLose, opReplace, opPhase, opForget, opDelete, opStop, opRemove, opCleanup)
	}
	if d.Chance(8) {
		s.Outcome = judge.Pick(d, hangs, breaks, missing)
	}
	s.NoSync = d.Chance(15)
	switch s.Op {
	case opExit:
		s.Code = int32(d.Int(3))
	case opPhase:
		s.Phase = judge.Pick(d, corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending)
	case opCleanup:
		s.Keep, s.Others = d.Chance(50), d.Int(4)
	default:
	}
	return s
}

// pod returns the pod of the world. All probes have the given period.
func (w world) pod(period int32) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: podUID, ResourceVersion: "1"},
		Spec:       corev1.PodSpec{RestartPolicy: w.Policy},
	}
	for _, c := range w.Containers {
		spec := c.spec(period)
		if c.Init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, spec)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, spec)
		}
	}
	return pod
}

func (c container) spec(period int32) corev1.Container {
	spec := corev1.Container{Name: c.Name, RestartPolicy: c.Policy}
	if c.Sidecar {
		spec.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	if c.Rule != nil {
		spec.RestartPolicyRules = []corev1.ContainerRestartRule{*c.Rule}
	}
	for k, p := range c.Probes {
		if p == nil {
			continue
		}
		made := p.spec(c.Name, prober.Kind(k), period)
		switch prober.Kind(k) {
		case prober.Startup:
			spec.StartupProbe = made
		case prober.Readiness:
			spec.ReadinessProbe = made
		case prober.Liveness:
			spec.LivenessProbe = made
		}
	}
	return spec
}

func (p *probe) spec(container string, k prober.Kind, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check", container, k.String()}}},
		InitialDelaySeconds: p.Delay, TimeoutSeconds: p.Timeout, PeriodSeconds: period,
		SuccessThreshold: p.Success, FailureThreshold: p.Failure,
	}
}

// state is the state of a container in the runtime.
type state string

const (
	gone     state = ""
	created  state = "created"
	running  state = "running"
	exited   state = "exited"
	notKnown state = "unknown"
)

// A live is a container in the runtime.
type live struct {
	ID        string
	State     state
	StartedAt time.Time
	Code      int32
}

// A node is the runtime as both sides see it. Each side has its own.
type node struct {
	containers []live
	ids        int
	phase      corev1.PodPhase
	forgotten  bool
	stopped    bool // the pod is terminating
	deleted    bool
}

func newNode(w world) *node {
	return &node{containers: make([]live, len(w.Containers)), phase: corev1.PodRunning}
}

func (n *node) newID() string {
	n.ids++
	return "id" + strconv.Itoa(n.ids)
}

// apply applies a step to the runtime.
func (n *node) apply(s step) {
	n.forgotten = s.Op == opForget
	if s.Container >= len(n.containers) {
		return
	}
	c := &n.containers[s.Container]
	if (n.stopped || n.ended()) && (s.Op == opCreate || s.Op == opStart || s.Op == opReplace) {
		return // no container is started in a terminating or terminated pod
	}
	switch s.Op {
	case opDelete:
		n.stopped, n.deleted = true, true
	case opStop:
		n.stopped = true
	case opRestart:
		n.stopped = n.stopped && !n.restarts()
	case opCreate:
		*c = live{ID: n.newID(), State: created}
	case opStart:
		switch c.State {
		case created:
			c.State, c.StartedAt = running, time.Now()
		case gone, exited, notKnown:
			*c = live{ID: n.newID(), State: running, StartedAt: time.Now()}
		case running:
		}
	case opReplace:
		*c = live{ID: n.newID(), State: running, StartedAt: time.Now()}
	case opRemove, opCleanup:
		if s.removes() {
			clear(n.containers)
			n.stopped, n.deleted = false, false
		}
	case opExit:
		if c.State == running {
			c.State, c.Code = exited, s.Code
		}
	case opUnknown:
		if c.State == running {
			c.State = notKnown
		}
	case opLose:
		*c = live{}
	case opPhase:
		if !n.ended() {
			n.phase = s.Phase
		}
	default:
	}
}

// ended reports whether the pod has a terminal phase.
func (n *node) ended() bool { return n.phase == corev1.PodSucceeded || n.phase == corev1.PodFailed }

// restarts reports whether the agent can restart: not while the pod terminates, and not while
// the state of a container is unknown.
func (n *node) restarts() bool {
	return !n.deleted && !n.ended() && !slices.ContainsFunc(n.containers, func(l live) bool { return l.State == notKnown })
}

// isRunning reports whether a container runs.
func (n *node) isRunning(id string) bool {
	return slices.ContainsFunc(n.containers, func(l live) bool { return l.ID == id && l.State == running })
}

// status returns the generated status of the pod, without probe results.
func (n *node) status(w world) corev1.PodStatus {
	st := corev1.PodStatus{Phase: n.phase, PodIP: "10.0.0.1"}
	for i, c := range w.Containers {
		l := n.containers[i]
		made := corev1.ContainerStatus{Name: c.Name}
		if l.ID != "" {
			made.ContainerID = "containerd://" + l.ID
		}
		switch l.State {
		case running:
			made.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(l.StartedAt)}
		case exited:
			made.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: l.Code, ContainerID: made.ContainerID}
		case gone, created, notKnown:
			made.State.Waiting = &corev1.ContainerStateWaiting{}
		}
		if c.Init {
			st.InitContainerStatuses = append(st.InitContainerStatuses, made)
		} else {
			st.ContainerStatuses = append(st.ContainerStatuses, made)
		}
	}
	return st
}

// published returns the status in the API server after an update.
func published(st corev1.PodStatus) corev1.PodStatus {
	ready := corev1.ConditionTrue
	for _, c := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
		if !c.Ready {
			ready = corev1.ConditionFalse
		}
	}
	st.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return *st.DeepCopy()
}

// others returns the other pods during a cleanup, each with a readiness probe.
func (s step) others() (all []*corev1.Pod) {
	for i := range s.Others {
		probe := probe{Timeout: 1, Success: 1, Failure: 1}
		all = append(all, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default", UID: types.UID("uid-" + strconv.Itoa(9-i))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "z", ReadinessProbe: probe.spec("z", prober.Readiness, never)}}},
		})
	}
	return all
}

// keeps reports whether a cleanup keeps a pod.
func (s step) keeps(uid types.UID) bool { return uid == podUID && s.Keep || uid == "uid-9" }

// outcomeOf returns the result of a command in this step. All commands of a step have the
// same result, except in "probe all", where one kind may fail.
func (s step) outcomeOf(container, kind int) outcome {
	if s.Op == opAll && s.Outcome != succeeds && (container != s.Container || kind != int(s.Kind)) {
		return succeeds
	}
	return s.Outcome
}

// output returns the output of a command.
func (o outcome) output(command []string) string { return fmt.Sprintf("%v %s", command, o) }

// String prints the world in a few lines.
func (w world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy %s, errors %d, quiet %t, unready %t\n", w.Policy, w.Errors, w.Quiet, w.Unready)
	for _, c := range w.Containers {
		fmt.Fprintf(&b, "container %s init=%t sidecar=%t", c.Name, c.Init, c.Sidecar)
		if c.Policy != nil {
			fmt.Fprintf(&b, " policy=%s rule=%v", *c.Policy, c.Rule)
		}
		for k, p := range c.Probes {
			if p != nil {
				fmt.Fprintf(&b, " %s%+v", prober.Kind(k), *p)
			}
		}
		fmt.Fprintln(&b)
	}
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d: after %s %s container %d %s: %s code %d phase %s keep=%t nosync=%t\n",
			i, s.After, s.Op, s.Container, s.Kind, s.Outcome, s.Code, s.Phase, s.Keep, s.NoSync)
	}
	return b.String()
}
