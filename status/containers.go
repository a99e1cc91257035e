package status

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// Reasons of waiting and terminated containers. Users see these reasons, and scripts match
// them.
const (
	// ReasonContainerCreating is the reason of a waiting container before its first start
	// attempt.
	ReasonContainerCreating = "ContainerCreating"
	// ReasonPodInitializing is used instead of ReasonContainerCreating in a pod that has init
	// containers.
	ReasonPodInitializing = "PodInitializing"
	// ReasonStatusUnknown is the reason of a terminated container that no longer exists in the
	// runtime, if its exit was not observed.
	ReasonStatusUnknown = "ContainerStatusUnknown"
	// ReasonRestartingAllContainers is the reason of a container that was removed because all
	// containers of the pod restart (KEP-5532).
	ReasonRestartingAllContainers = "RestartingAllContainers"
	// ReasonCompleted is the reason of a container that exited with code 0.
	ReasonCompleted = "Completed"
)

// The kubelet's texts, byte for byte, including the two spaces in lostWhileRunning.
const (
	lostAtTermination = "The container could not be located when the pod was terminated"
	lostWhileRunning  = "The container could not be located when the pod was deleted.  The container used to be Running"
	initMustHaveEnded = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"

	// lostExitCode is the exit code that a shell reports for SIGKILL.
	lostExitCode = 137
)

// kind is the kind of a container in its pod.
type kind int

const (
	plainInit kind = iota
	sidecar
	regular
	ephemeral
)

// ContainerStatuses returns the statuses of a pod's init, regular and ephemeral containers,
// each list in spec order. It ignores the fields of the Input that do not concern containers.
// The Input is not modified, and the results share no memory with it.
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
	// regulars is never nil, because for the conditions nil means that the statuses are unknown.
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

// regularCreated reports whether a regular container exists in the runtime in a known state.
// If so, all plain init containers have exited with code 0.
func regularCreated(in *Input) bool {
	return in.Runtime != nil && slices.ContainsFunc(in.Pod.Spec.Containers, func(c corev1.Container) bool {
		seen := in.Runtime.Container(c.Name)
		return seen != nil && seen.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN
	})
}

// generator generates container statuses.
type generator struct {
	Input
	old        *corev1.PodStatus
	waiting    string // the waiting reason of containers before their first start attempt
	inferInit  bool   // a plain init container that is missing in the runtime has completed
	restarting bool   // a container that is missing in the runtime was removed because all containers restart
}

func (g *generator) container(c *corev1.Container, k kind, old *corev1.ContainerStatus) corev1.ContainerStatus {
	var st corev1.ContainerStatus
	newest, before := g.newest(c.Name)
	keep := old != nil && newest == nil && g.keepPrevious()
	switch {
	case newest != nil:
		st = g.present(c, newest, before, old)
	case old != nil && old.State.Waiting == nil && g.restarting && !keep:
		st = removedForRestart(c, old)
	case keep, old != nil && old.State.Terminated != nil:
		st = *old.DeepCopy()
	default:
		st = g.absent(c, old)
	}
	if newest == nil && !keep && k == plainInit && g.inferInit && st.State.Waiting != nil {
		st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: ReasonCompleted, Message: initMustHaveEnded,
		}}
	}
	if newest != nil || st.VolumeMounts == nil {
		st.VolumeMounts = volumeMounts(c, newest)
	}
	g.devices(&st, old)
	g.showWaiting(&st, c, k)
	g.probe(&st, k, old)
	return st
}

// newest returns the two newest containers with the given name. A container that does not exist
// is nil.
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

// absent returns the status of a container that does not exist in the runtime and
// was not reported as terminated.
func (g *generator) absent(c *corev1.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	st.State.Waiting = &corev1.ContainerStateWaiting{Reason: g.waiting}
	if old != nil {
		st.RestartCount = old.RestartCount
		old.LastTerminationState.DeepCopyInto(&st.LastTerminationState)
	}
	if old != nil && old.State.Running != nil && st.LastTerminationState.Terminated == nil {
		// The container was running, so it has terminated, and the status must show that it ran.
		// If the pod is not being deleted, the next container is a restart.
		st.LastTerminationState.Terminated = lost(lostWhileRunning)
		if g.Pod.DeletionTimestamp == nil {
			st.RestartCount++
		}
	}
	return st
}

// present returns the status of a container that exists in the runtime. It preserves the restart
// count and the last termination even if the runtime has removed the previous containers.
func (g *generator) present(
	c *corev1.Container, newest, before *runtimeapi.ContainerStatus, old *corev1.ContainerStatus,
) corev1.ContainerStatus {
	st := g.convert(newest, old)
	g.addTerminationMessage(st.State.Terminated, newest, old)
	given, ok := g.Allocated[c.Name] // may be less than the resources in c
	if !ok {
		given = c.Resources
	}
	g.setResources(&st, &given, newest, old)
	if before != nil {
		// A runtime may report two running containers. The older one then has no termination.
		st.LastTerminationState.Terminated = g.convert(before, old).State.Terminated
		g.addTerminationMessage(st.LastTerminationState.Terminated, before, old)
	}
	if old != nil {
		restoreHistory(&st, old)
	}
	return st
}

// addTerminationMessage adds the termination message of container c to its termination, the
// first argument. It does nothing if the termination is nil. A message that was read before
// is not read again, because its file may have been removed.
func (g *generator) addTerminationMessage(end *corev1.ContainerStateTerminated, c *runtimeapi.ContainerStatus, old *corev1.ContainerStatus) {
	if end == nil || end.ContainerID == "" || g.TerminationMessage == nil {
		return // a lost container has no message, and no ID to find an earlier message
	}
	if old != nil {
		for _, known := range []*corev1.ContainerStateTerminated{old.State.Terminated, old.LastTerminationState.Terminated} {
			if known != nil && known.ContainerID == end.ContainerID {
				end.Message = known.Message
				return
			}
		}
	}
	if words := g.TerminationMessage(c); words != "" {
		end.Message = strings.TrimPrefix(end.Message+": "+words, ": ")
	}
}

// restoreHistory copies the restart count and the last termination from old to st, because
// the runtime may no longer report them.
func restoreHistory(st, old *corev1.ContainerStatus) {
	last, replaced := old.LastTerminationState.Terminated, old.ContainerID != st.ContainerID
	if replaced && old.State.Terminated != nil {
		last = old.State.Terminated
		if st.State.Running != nil {
			st.RestartCount = max(st.RestartCount, old.RestartCount+1)
		}
	}
	st.RestartCount = max(st.RestartCount, old.RestartCount)
	// During a back-off, showWaiting shows the container's own termination as the last
	// termination. After the back-off, the termination may be the state again. It is then not
	// copied, because a termination must not be the state and the last termination at the same
	// time.
	own := last != nil && last.ContainerID != "" && last.ContainerID == st.ContainerID
	if st.LastTerminationState.Terminated == nil && !own {
		st.LastTerminationState.Terminated = last.DeepCopy()
	}
}

// devices sets the health of the container's devices and claims.
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

// showWaiting sets the state of a container to waiting, with the reason in g.Waiting, if the
// container may be started. A terminated container that will start again because a restart of
// the pod was requested becomes waiting with [ReasonPodRestarting]. If the previous state is
// a termination, that termination becomes the last termination.
func (g *generator) showWaiting(st *corev1.ContainerStatus, c *corev1.Container, k kind) {
	why, ok := g.Waiting[c.Name]
	if !ok && g.isRestarting(c, k) && st.State.Terminated != nil {
		why, ok = corev1.ContainerStateWaiting{Reason: ReasonPodRestarting, Message: podRestarting}, true
	}
	if !ok || !g.mayStart(st, c, k) {
		return
	}
	if st.State.Terminated != nil {
		st.LastTerminationState = st.State
	}
	st.State = corev1.ContainerState{Waiting: &why}
}

// isRestarting reports whether a requested restart of the pod starts c again. It does not start
// ephemeral containers again.
func (g *generator) isRestarting(c *corev1.Container, k kind) bool {
	return g.Restarting[c.Name] && k != ephemeral
}

// mayStart reports whether c may be started, for the first time or again.
func (g *generator) mayStart(st *corev1.ContainerStatus, c *corev1.Container, k kind) bool {
	switch end := st.State.Terminated; {
	case g.Terminal, g.Pod.DeletionTimestamp != nil, st.State.Running != nil:
		return false
	case end == nil:
		return true
	case g.isRestarting(c, k):
		return true
	case k == ephemeral, k == plainInit && end.ExitCode == 0:
		return false
	default:
		return podspec.ShouldRestart(g.Pod, c, end.ExitCode)
	}
}

// probe sets Started and Ready of a container that is not ephemeral.
func (g *generator) probe(st *corev1.ContainerStatus, k kind, old *corev1.ContainerStatus) {
	if k == ephemeral {
		return
	}
	started, ready := false, false
	if st.State.Running != nil {
		started, ready = g.probeState(st, k, old)
	}
	if k == plainInit {
		ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
	}
	st.Started, st.Ready = &started, ready
}

// probeState reports whether the running container of st is started and ready.
func (g *generator) probeState(st *corev1.ContainerStatus, k kind, old *corev1.ContainerStatus) (started, ready bool) {
	if g.Probes == nil || k == plainInit {
		return true, true
	}
	same := old != nil && old.ContainerID == st.ContainerID
	startup, readiness := g.Probes(st.Name, podspec.RuntimeID(st.ContainerID))
	started = startup.passed(same && old.Started != nil && *old.Started)
	return started, started && readiness.passed(same && old.Ready)
}

// passed reports whether the probe counts as passed. If r is ProbeUnknown, passed returns
// previous, the last reported state.
func (r ProbeResult) passed(previous bool) bool {
	return r == NoProbe || r == ProbePassed || r == ProbeUnknown && previous
}
