package status

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// Reasons of waiting and terminated containers, which users see and scripts
// match.
const (
	// ReasonContainerCreating is why a container waits before anything was tried.
	ReasonContainerCreating = "ContainerCreating"
	// ReasonPodInitializing is the same in a pod that has init containers.
	ReasonPodInitializing = "PodInitializing"
	// ReasonStatusUnknown is how a container ended of which the runtime has lost
	// every trace.
	ReasonStatusUnknown = "ContainerStatusUnknown"
	// ReasonRestartingAllContainers is how a container ended that was taken down
	// to restart the whole pod (KEP-5532).
	ReasonRestartingAllContainers = "RestartingAllContainers"
	// ReasonCompleted is how a container ended that exited with 0.
	ReasonCompleted = "Completed"
)

// The kubelet's texts, byte for byte: two spaces in the second one.
const (
	lostAtTermination = "The container could not be located when the pod was terminated"
	lostWhileRunning  = "The container could not be located when the pod was deleted.  The container used to be Running"
	initMustHaveEnded = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"

	// lostExitCode is what a shell reports for SIGKILL.
	lostExitCode = 137
)

// kind is which of a pod's lists a container is in.
type kind int

const (
	plainInit kind = iota
	sidecar
	regular
	ephemeral
)

// ContainerStatuses returns the statuses of a pod's init, regular and ephemeral
// containers, each list in spec order. Fields of in that do not concern
// containers are ignored; nothing is modified or shared.
func ContainerStatuses(in Input) (inits, regulars, ephemerals []corev1.ContainerStatus) {
	g := generator{
		Input: in, old: in.previous(), waiting: ReasonContainerCreating,
		inferInit: regularCreated(&in), restarting: restartingAll(&in),
	}
	spec := &in.Pod.Spec
	if len(spec.InitContainers) > 0 {
		g.waiting = ReasonPodInitializing
		inits = make([]corev1.ContainerStatus, len(spec.InitContainers))
	}
	for i := range spec.InitContainers {
		c, k := &spec.InitContainers[i], plainInit
		if podspec.IsSidecar(c) {
			k = sidecar
		}
		inits[i] = g.container(c, k, find(g.old.InitContainerStatuses, c.Name))
	}
	// Never nil: conditions tell "no containers" from "nothing known" by it.
	regulars = make([]corev1.ContainerStatus, len(spec.Containers))
	for i := range spec.Containers {
		c := &spec.Containers[i]
		regulars[i] = g.container(c, regular, find(g.old.ContainerStatuses, c.Name))
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		ephemerals = append(ephemerals, g.container(&c, ephemeral, find(g.old.EphemeralContainerStatuses, c.Name)))
	}
	return inits, regulars, ephemerals
}

// regularCreated says whether the runtime has, or had, a regular container: by
// then all plain init containers had exited with 0.
func regularCreated(in *Input) bool {
	return in.Runtime != nil && slices.ContainsFunc(in.Pod.Spec.Containers, func(c corev1.Container) bool {
		seen := in.Runtime.Container(c.Name)
		return seen != nil && seen.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN
	})
}

// generator makes container statuses.
type generator struct {
	Input
	old        *corev1.PodStatus
	waiting    string // the reason of containers that nobody has tried to start
	inferInit  bool   // a plain init container that is missing has done its work
	restarting bool   // a container that is missing was removed to restart all
}

func (g *generator) container(c *corev1.Container, k kind, old *corev1.ContainerStatus) corev1.ContainerStatus {
	var st corev1.ContainerStatus
	newest, before := g.newest(c.Name)
	stands := old != nil && newest == nil && g.carried()
	switch {
	case newest != nil:
		st = g.present(c, newest, before, old)
	case old != nil && old.State.Waiting == nil && g.restarting && !stands:
		st = takenDown(c, old)
	case stands, old != nil && old.State.Terminated != nil:
		st = *old.DeepCopy()
	default:
		st = g.absent(c, old)
	}
	if newest == nil && !stands && k == plainInit && g.inferInit && st.State.Waiting != nil {
		st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: ReasonCompleted, Message: initMustHaveEnded,
		}}
	}
	if newest != nil || st.VolumeMounts == nil {
		st.VolumeMounts = volumeMounts(c, newest)
	}
	g.devices(&st, old)
	g.hold(&st, c, k)
	g.probe(&st, k, old)
	return st
}

// newest returns the newest two containers of that name, nil where there is none.
func (g *generator) newest(name string) (newest, before *runtimeapi.ContainerStatus) {
	if g.Runtime == nil {
		return nil, nil
	}
	for _, c := range g.Runtime.Containers {
		switch {
		case c == nil || podcache.ContainerName(c) != name:
		case newest == nil:
			newest = c
		default:
			return newest, c
		}
	}
	return newest, nil
}

// absent returns the status of a container that the runtime does not show and
// that was not known to have ended.
func (g *generator) absent(c *corev1.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	st.State.Waiting = &corev1.ContainerStateWaiting{Reason: g.waiting}
	if old != nil {
		st.RestartCount = old.RestartCount
		old.LastTerminationState.DeepCopyInto(&st.LastTerminationState)
	}
	if old != nil && old.State.Running != nil && st.LastTerminationState.Terminated == nil {
		// It ran, so it has ended, and the pod must not look as if it never had
		// started. Unless the pod goes away, the next one is a restart.
		st.LastTerminationState.Terminated = lost(lostWhileRunning)
		if g.Pod.DeletionTimestamp == nil {
			st.RestartCount++
		}
	}
	return st
}

// present returns the status of a container that the runtime shows. Restart
// count and last termination survive the removal of the containers before it.
func (g *generator) present(
	c *corev1.Container, newest, before *runtimeapi.ContainerStatus, old *corev1.ContainerStatus,
) corev1.ContainerStatus {
	st := g.convert(newest, old)
	g.addLastWords(st.State.Terminated, newest, old)
	given, ok := g.Allocated[c.Name] // may be less than c asks for
	if !ok {
		given = c.Resources
	}
	g.setResources(&st, &given, newest, old)
	if before != nil {
		// Only an end can be the last one; a runtime may show two that run.
		st.LastTerminationState.Terminated = g.convert(before, old).State.Terminated
		g.addLastWords(st.LastTerminationState.Terminated, before, old)
	}
	if old != nil {
		carry(&st, old)
	}
	return st
}

// addLastWords adds to end, if there is one, what container c left as its
// termination message. What was read once stands: it is never read again, and
// outlives its file.
func (g *generator) addLastWords(end *corev1.ContainerStateTerminated, c *runtimeapi.ContainerStatus, old *corev1.ContainerStatus) {
	if end == nil || end.ContainerID == "" || g.LastWords == nil {
		return // one that was lost has no words, and no ID to find those of before by
	}
	if old != nil {
		for _, told := range []*corev1.ContainerStateTerminated{old.State.Terminated, old.LastTerminationState.Terminated} {
			if told != nil && told.ContainerID == end.ContainerID {
				end.Message = told.Message
				return
			}
		}
	}
	if words := g.LastWords(c); words != "" {
		end.Message = strings.TrimPrefix(end.Message+": "+words, ": ")
	}
}

// carry keeps in st what old knows and the runtime may have forgotten.
func carry(st, old *corev1.ContainerStatus) {
	last, replaced := old.LastTerminationState.Terminated, old.ContainerID != st.ContainerID
	if replaced && old.State.Terminated != nil {
		last = old.State.Terminated
		if st.State.Running != nil {
			st.RestartCount = max(st.RestartCount, old.RestartCount+1)
		}
	}
	st.RestartCount = max(st.RestartCount, old.RestartCount)
	// An end that the back-off had shown as the last one is now the state again.
	own := last != nil && last.ContainerID != "" && last.ContainerID == st.ContainerID
	if st.LastTerminationState.Terminated == nil && !own {
		st.LastTerminationState.Terminated = last.DeepCopy()
	}
}

// devices says how what the container was given is.
func (g *generator) devices(st, old *corev1.ContainerStatus) {
	var known []corev1.ResourceStatus
	switch {
	case g.Devices != nil:
		known = g.Devices[st.Name]
	case old != nil && old.ContainerID == st.ContainerID:
		known = old.AllocatedResourcesStatus
	}
	st.AllocatedResourcesStatus = nil
	for i := range known {
		st.AllocatedResourcesStatus = append(st.AllocatedResourcesStatus, *known[i].DeepCopy())
	}
}

// hold shows a container that ought to be started but is not as waiting, with
// the reason, and how it had ended as its last termination.
func (g *generator) hold(st *corev1.ContainerStatus, c *corev1.Container, k kind) {
	why, ok := g.Waiting[c.Name]
	if !ok || !g.mayStart(st, c, k) {
		return
	}
	if st.State.Terminated != nil {
		st.LastTerminationState = st.State
	}
	st.State = corev1.ContainerState{Waiting: &why}
}

// mayStart says whether c may be started, for the first time or again.
func (g *generator) mayStart(st *corev1.ContainerStatus, c *corev1.Container, k kind) bool {
	switch end := st.State.Terminated; {
	case g.Terminal, g.Pod.DeletionTimestamp != nil, st.State.Running != nil:
		return false
	case end == nil:
		return true
	case k == ephemeral, k == plainInit && end.ExitCode == 0:
		return false
	default:
		return podspec.ShouldRestart(g.Pod, c, end.ExitCode)
	}
}

// probe sets Started and Ready. An ephemeral container is neither.
func (g *generator) probe(st *corev1.ContainerStatus, k kind, old *corev1.ContainerStatus) {
	if k == ephemeral {
		return
	}
	started, ready := false, false
	if st.State.Running != nil {
		started, ready = g.verdict(st, k, old)
	}
	if k == plainInit {
		ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
	}
	st.Started, st.Ready = &started, ready
}

// verdict returns whether the running container of st is started and ready.
func (g *generator) verdict(st *corev1.ContainerStatus, k kind, old *corev1.ContainerStatus) (started, ready bool) {
	if g.Probes == nil || k == plainInit {
		return true, true
	}
	same := old != nil && old.ContainerID == st.ContainerID
	startup, readiness := g.Probes(st.Name, podspec.RuntimeID(st.ContainerID))
	started = startup.holds(same && old.Started != nil && *old.Started)
	return started, started && readiness.holds(same && old.Ready)
}

// holds reports whether r is good, before being what it was when last looked at.
func (r ProbeResult) holds(before bool) bool {
	return r == NoProbe || r == ProbePassed || r == ProbeUnknown && before
}
