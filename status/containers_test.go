package status_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

func container(name, id string, state runtimeapi.ContainerState, exit int32) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: name + id, State: state, ExitCode: exit,
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Labels:   map[string]string{crilabels.ContainerName: name},
		Image:    &runtimeapi.ImageSpec{Image: "img:1"}, ImageRef: "img@sha256:1",
		StartedAt: at(1).UnixNano(), FinishedAt: at(2).UnixNano(),
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1000, Gid: 1000, SupplementalGroups: []int64{1000}}},
	}
}

func restarted(c *runtimeapi.ContainerStatus, times int) *runtimeapi.ContainerStatus {
	c.Annotations = map[string]string{crilabels.RestartCount: strconv.Itoa(times)}
	return c
}

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

func TestContainerStatuses_EveryField(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	c := restarted(container("a", "2", exited, 137), 4)
	c.Reason, c.Message = "OOMKilled", "last words"
	c.Image.UserSpecifiedImage = "short:1"
	_, got, _ := status.ContainerStatuses(status.Input{
		Pod: pod, RuntimeName: "containerd",
		Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{c, restarted(container("a", "1", exited, 1), 3)}},
	})
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	require.Equal(t, []corev1.ContainerStatus{{
		Name: "a", Image: "img:1", ImageID: "img@sha256:1", ContainerID: "containerd://a2", RestartCount: 4, Started: new(false),
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "OOMKilled", Message: "last words", ContainerID: "containerd://a2",
			StartedAt: metav1.Time{Time: at(1)}, FinishedAt: metav1.Time{Time: at(2)},
		}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, ContainerID: "containerd://a1", StartedAt: metav1.Time{Time: at(1)}, FinishedAt: metav1.Time{Time: at(2)},
		}},
		AllocatedResources: requests,
		Resources:          &corev1.ResourceRequirements{Requests: requests, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}},
		User:               &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1000, GID: 1000, SupplementalGroups: []int64{1000}}},
	}}, got)
}

func TestContainerStatuses_IncompleteCRIMessages(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	bare := &runtimeapi.ContainerStatus{Id: "x", State: running, Labels: map[string]string{crilabels.ContainerName: "a"}, ImageId: "sha256:1", User: &runtimeapi.ContainerUser{}}
	_, got, _ := status.ContainerStatuses(status.Input{Pod: pod, Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{nil, bare}}})
	require.Equal(t, "x", got[0].ContainerID, "without a runtime name, the ID must have no scheme")
	require.Empty(t, got[0].Image, "the image must be the one that the runtime has resolved")
	require.Empty(t, got[0].ImageID, "the image reference must not be used as the image ID")
	require.Equal(t, &corev1.ContainerUser{}, got[0].User)
}

// A container whose start was interrupted because the agent stopped never ran: with policy
// Never it has not failed, and it does not count as a restart.
func TestContainerStatuses_InterruptedStartIsNoTermination(t *testing.T) {
	t.Parallel()
	pod := newPod("Never", "a")
	c := brokenOff("a")
	got := status.Generate(status.Input{Pod: pod, Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{c}}, Now: at(3)})
	require.Equal(t, corev1.PodPending, got.Phase)
	require.Equal(t, "waiting:", word(got.ContainerStatuses[0]), "the container must be shown as a created one")
	c.Message = "no such file or directory"
	got = status.Generate(status.Input{Pod: pod, Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{c}}, Now: at(3)})
	require.Equal(t, corev1.PodFailed, got.Phase)
}

func TestContainerStatuses_InterruptedStartDoesNotRestartAll(t *testing.T) {
	t.Parallel()
	pod := parseScene(t, "Never", "run@Never+all128 run").pod
	restarting := func(c *runtimeapi.ContainerStatus) corev1.ConditionStatus {
		seen := &podcache.Status{Containers: []*runtimeapi.ContainerStatus{c, container("c1", "1", running, 0)}}
		s := status.Generate(status.Input{Pod: pod, Runtime: seen, Now: at(3)})
		return status.Condition(s.Conditions, corev1.AllContainersRestarting).Status
	}
	require.Equal(t, corev1.ConditionFalse, restarting(brokenOff("c0")))
	require.Equal(t, corev1.ConditionTrue, restarting(container("c0", "1", exited, 128)), "the container exited by itself with this code")
}

func brokenOff(name string) *runtimeapi.ContainerStatus {
	c := container(name, "1", exited, 128)
	c.StartedAt, c.Reason, c.Message = 0, "StartError", "failed to create containerd task: failed to create shim task: context canceled"
	return c
}

// word returns the short form of a status: see TestContainerStatuses.
func word(st corev1.ContainerStatus) string {
	s := stateWord(st.State)
	if last := stateWord(st.LastTerminationState); last != "-" {
		s += " after " + last
	}
	if st.RestartCount > 0 {
		s += " #" + strconv.Itoa(int(st.RestartCount))
	}
	return s
}

func stateWord(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return "waiting:" + s.Waiting.Reason
	case s.Terminated != nil:
		return "exit" + strconv.Itoa(int(s.Terminated.ExitCode)) + ":" + s.Terminated.Reason
	default:
		return "-"
	}
}

func stateOf(t *testing.T, w string) corev1.ContainerState {
	t.Helper()
	switch w {
	case "running":
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	case "waiting":
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	case "":
		return corev1.ContainerState{}
	default:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: number(t, w[len("exit"):])}}
	}
}

// was returns the last reported status of the container with the given ID.
func was(t *testing.T, id, state, last string, restarts int32) *corev1.ContainerStatus {
	t.Helper()
	st := &corev1.ContainerStatus{Name: "a", RestartCount: restarts, State: stateOf(t, state), LastTerminationState: stateOf(t, last)}
	if id != "" {
		st.ContainerID = "a" + id
		if st.State.Terminated != nil {
			st.State.Terminated.ContainerID = st.ContainerID
		}
	}
	return st
}

func TestContainerStatuses(t *testing.T) {
	t.Parallel()
	type cs = []*runtimeapi.ContainerStatus
	const lost, backOff = "exit137:ContainerStatusUnknown", "CrashLoopBackOff"
	for name, tc := range map[string]struct {
		policy  corev1.RestartPolicy
		deleted bool
		old     *corev1.ContainerStatus
		seen    cs
		waiting string
		want    string
	}{
		"never tried":                 {want: "waiting:ContainerCreating"},
		"created":                     {seen: cs{container("a", "1", created, 0)}, want: "waiting:"},
		"running":                     {seen: cs{container("a", "1", running, 0)}, want: "running"},
		"exited":                      {seen: cs{container("a", "1", exited, 3)}, want: "exit3:"},
		"unknown, never seen running": {seen: cs{container("a", "1", unknown, 0)}, want: "waiting:"},
		"unknown, was running":        {old: was(t, "1", "running", "", 2), seen: cs{container("a", "1", unknown, 0)}, want: lost + " #3"},
		"unknown, and was reported as terminated":    {old: was(t, "1", "exit137", "", 3), seen: cs{container("a", "1", unknown, 0)}, want: "exit137: #3"},
		"unknown predecessor of a running container": {old: was(t, "2", "running", "", 1), seen: cs{restarted(container("a", "2", running, 0), 1), container("a", "1", unknown, 0)}, want: "running after " + lost + " #1"},
		"unknown predecessor of a created container": {old: was(t, "1", "running", "", 0), seen: cs{restarted(container("a", "2", created, 0), 1), container("a", "1", unknown, 0)}, want: "waiting: after " + lost + " #1"},
		"running again":                         {seen: cs{restarted(container("a", "2", running, 0), 1), container("a", "1", exited, 3)}, want: "running after exit3: #1"},
		"only the newest two count":             {seen: cs{restarted(container("a", "3", running, 0), 2), restarted(container("a", "2", exited, 2), 1), container("a", "1", exited, 1)}, want: "running after exit2: #2"},
		"two running":                           {seen: cs{restarted(container("a", "2", running, 0), 1), container("a", "1", running, 0)}, want: "running #1"},
		"lost while running":                    {old: was(t, "1", "running", "", 0), want: "waiting:ContainerCreating after " + lost + " #1"},
		"lost while running, deleted":           {old: was(t, "1", "running", "", 0), deleted: true, want: "waiting:ContainerCreating after " + lost},
		"lost after an earlier end":             {old: was(t, "1", "running", "exit2", 1), want: "waiting:ContainerCreating after exit2: #1"},
		"lost while waiting":                    {old: was(t, "", "waiting", "exit2", 4), want: "waiting:ContainerCreating after exit2: #4"},
		"lost after its end":                    {old: was(t, "1", "exit2", "exit1", 4), want: "exit2: after exit1: #4"},
		"predecessor removed":                   {old: was(t, "1", "exit2", "", 1), seen: cs{restarted(container("a", "2", running, 0), 2)}, want: "running after exit2: #2"},
		"predecessor removed and count lost":    {old: was(t, "1", "exit2", "", 4), seen: cs{container("a", "2", running, 0)}, want: "running after exit2: #5"},
		"last end outlives its container":       {old: was(t, "2", "running", "exit1", 1), seen: cs{restarted(container("a", "2", running, 0), 1)}, want: "running after exit1: #1"},
		"back-off":                              {seen: cs{container("a", "1", exited, 3)}, waiting: backOff, want: "waiting:CrashLoopBackOff after exit3:"},
		"back-off is over, not started yet":     {old: was(t, "1", "waiting", "exit3", 0), seen: cs{container("a", "1", exited, 3)}, want: "exit3: after exit3:"},
		"image cannot be pulled":                {waiting: "ImagePullBackOff", want: "waiting:ImagePullBackOff"},
		"container cannot be started":           {seen: cs{container("a", "1", created, 0)}, waiting: "RunContainerError", want: "waiting:RunContainerError"},
		"a reason does not outweigh running":    {seen: cs{container("a", "1", running, 0)}, waiting: backOff, want: "running"},
		"a reason does not outweigh deletion":   {seen: cs{container("a", "1", exited, 3)}, deleted: true, waiting: backOff, want: "exit3:"},
		"a reason does not outweigh the policy": {policy: "Never", seen: cs{container("a", "1", exited, 3)}, waiting: backOff, want: "exit3:"},
		"nor where the container is removed":    {policy: "Never", old: was(t, "1", "exit3", "", 0), waiting: backOff, want: "exit3:"},
		"on failure, failed":                    {policy: "OnFailure", seen: cs{container("a", "1", exited, 3)}, waiting: backOff, want: "waiting:CrashLoopBackOff after exit3:"},
		"on failure, succeeded":                 {policy: "OnFailure", seen: cs{container("a", "1", exited, 0)}, waiting: backOff, want: "exit0:"},
	} {
		pod := newPod(tc.policy, "a")
		if tc.policy == "" {
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		}
		if tc.deleted {
			pod.DeletionTimestamp = &metav1.Time{Time: at(0)}
		}
		in := status.Input{Pod: pod, Runtime: &podcache.Status{Containers: tc.seen}}
		if tc.old != nil {
			in.Previous = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{*tc.old}}
		}
		if tc.waiting != "" {
			in.Waiting = map[string]corev1.ContainerStateWaiting{"a": {Reason: tc.waiting, Message: "why"}}
		}
		_, got, _ := status.ContainerStatuses(in)
		require.Len(t, got, 1)
		require.Equal(t, tc.want, word(got[0]), name)
		if got[0].State.Waiting != nil && tc.waiting != "" {
			require.Equal(t, "why", got[0].State.Waiting.Message, name)
		}
	}
}

func TestContainerStatuses_TerminationIsNotItsOwnLastOne(t *testing.T) {
	t.Parallel()
	in := status.Input{Pod: newPod("Always", "a"), RuntimeName: "r", Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("a", "1", exited, 3)}}}
	in.Waiting = map[string]corev1.ContainerStateWaiting{"a": {Reason: "CrashLoopBackOff"}}
	in.Previous = status.Generate(in)
	require.Equal(t, "waiting:CrashLoopBackOff after exit3:", word(in.Previous.ContainerStatuses[0]))
	in.Waiting = nil
	require.Equal(t, "exit3:", word(status.Generate(in).ContainerStatuses[0]))
}

func TestContainerStatuses_InitSidecarAndEphemeral(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "z", "a")
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	type cs = []*runtimeapi.ContainerStatus
	backOff := map[string]corev1.ContainerStateWaiting{"i": {Reason: "b"}, "s": {Reason: "b"}, "a": {Reason: "b"}, "e": {Reason: "b"}}
	for name, tc := range map[string]struct {
		seen       cs
		waiting    map[string]corev1.ContainerStateWaiting
		i, s, a, e string
	}{
		"nothing yet": {nil, nil, "waiting:PodInitializing", "waiting:PodInitializing", "waiting:PodInitializing", "waiting:PodInitializing"},
		"init runs":   {cs{container("i", "1", running, 0)}, nil, "running", "waiting:PodInitializing", "waiting:PodInitializing", "waiting:PodInitializing"},
		"init removed after it had done its work": {
			cs{container("a", "1", running, 0)},
			backOff,
			"exit0:Completed", "waiting:b", "running", "waiting:b",
		},
		"a regular container of unknown state proves nothing": {
			cs{container("a", "1", unknown, 0)},
			nil,
			"waiting:PodInitializing", "waiting:PodInitializing", "waiting:", "waiting:PodInitializing",
		},
		"all failed": {
			cs{container("i", "1", exited, 1), container("s", "1", exited, 1), container("a", "1", exited, 1), container("e", "1", exited, 1)},
			backOff,
			"waiting:b after exit1:", "waiting:b after exit1:", "waiting:b after exit1:", "exit1:",
		},
		"all succeeded": {
			cs{container("i", "1", exited, 0), container("s", "1", exited, 0), container("a", "1", exited, 0), container("e", "1", exited, 0)},
			backOff,
			"exit0:", "waiting:b after exit0:", "waiting:b after exit0:", "exit0:",
		},
	} {
		init, regular, ephemeral := status.ContainerStatuses(status.Input{Pod: pod, Runtime: &podcache.Status{Containers: tc.seen}, Waiting: tc.waiting})
		require.Equal(t, []string{"i", "s"}, []string{init[0].Name, init[1].Name})
		require.Equal(t, []string{tc.i, tc.s, tc.a, tc.e}, []string{word(init[0]), word(init[1]), word(regular[1]), word(ephemeral[0])}, name)
		if init[0].State.Terminated != nil && init[0].State.Terminated.Reason == status.ReasonCompleted {
			require.Equal(t, "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally", init[0].State.Terminated.Message)
		}
	}
}

func TestContainerStatuses_StartedAndReady(t *testing.T) {
	t.Parallel()
	const no, unsure, good, bad = status.NoProbe, status.ProbeUnknown, status.ProbePassed, status.ProbeFailed
	for name, tc := range map[string]struct {
		state              runtimeapi.ContainerState
		startup, readiness status.ProbeResult
		oldID              string // the previous container was started and ready
		started, ready     bool
	}{
		"no probes":                           {running, no, no, "", true, true},
		"not running":                         {exited, no, no, "a1", false, false},
		"startup unknown":                     {running, unsure, no, "", false, false},
		"startup failed":                      {running, bad, good, "a1", false, false},
		"startup passed":                      {running, good, no, "", true, true},
		"readiness unknown":                   {running, no, unsure, "", true, false},
		"readiness failed":                    {running, no, bad, "a1", true, false},
		"readiness passed":                    {running, good, good, "", true, true},
		"unknown after the agent's restart":   {running, unsure, unsure, "a1", true, true},
		"unknown after the container's start": {running, unsure, unsure, "a0", false, false},
		"invalid probe result":                {running, 9, 9, "a1", false, false},
	} {
		in := status.Input{
			Pod: newPod("Always", "a"), Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("a", "1", tc.state, 0)}},
			RuntimeName: "containerd",
			Probes: func(name, id string) (_, _ status.ProbeResult) {
				require.Equal(t, "a a1", name+" "+id)
				return tc.startup, tc.readiness
			},
		}
		if tc.oldID != "" {
			in.Previous = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "a", ContainerID: "containerd://" + tc.oldID, Started: new(true), Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}}}
		}
		_, got, _ := status.ContainerStatuses(in)
		require.Equal(t, tc.started, *got[0].Started, name)
		require.Equal(t, tc.ready, got[0].Ready, name)
	}
}

func TestContainerStatuses_SucceededInitContainerIsReady(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		state          runtimeapi.ContainerState
		exit           int32
		started, ready bool
	}{{running, 0, true, false}, {exited, 0, false, true}, {exited, 1, false, false}} {
		pod := newPod("Never", "a")
		pod.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		init, _, _ := status.ContainerStatuses(status.Input{
			Pod: pod, Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("i", "1", tc.state, tc.exit)}},
			Probes: func(name, _ string) (_, _ status.ProbeResult) {
				require.NotEqual(t, "i", name, "plain init containers have no probes")
				return status.NoProbe, status.NoProbe
			},
		})
		require.Equal(t, tc.started, *init[0].Started)
		require.Equal(t, tc.ready, init[0].Ready)
	}
}

func TestContainerStatuses_MessagesOfLostContainers(t *testing.T) {
	t.Parallel()
	in := status.Input{Pod: newPod("Always", "a"), Runtime: &podcache.Status{}}
	in.Previous = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{*was(t, "1", "running", "", 0)}}
	_, got, _ := status.ContainerStatuses(in)
	require.Equal(t, "The container could not be located when the pod was deleted.  The container used to be Running", got[0].LastTerminationState.Terminated.Message)
	in.Runtime.Containers = []*runtimeapi.ContainerStatus{container("a", "1", unknown, 0)}
	_, got, _ = status.ContainerStatuses(in)
	require.Equal(t, "The container could not be located when the pod was terminated", got[0].State.Terminated.Message)
}

// TestContainerStatuses_TerminationMessageIsAddedOnce checks that the message is kept after
// its file was removed.
func TestContainerStatuses_TerminationMessageIsAddedOnce(t *testing.T) {
	t.Parallel()
	newest, before := container("a", "2", exited, 3), container("a", "1", exited, 3)
	said := map[string]string{newest.GetId(): "second", before.GetId(): "first"}
	words := func(c *runtimeapi.ContainerStatus) string { return said[c.GetId()] }
	newest.Message = "the runtime's"
	in := status.Input{
		Pod: newPod("Never", "a"), TerminationMessage: words,
		Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{newest, before}},
	}
	for range 2 {
		_, got, _ := status.ContainerStatuses(in)
		require.Equal(t, "the runtime's: second", got[0].State.Terminated.Message)
		require.Equal(t, "first", got[0].LastTerminationState.Terminated.Message)
		in.Previous = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: got}
		clear(said)
	}
	in.TerminationMessage = nil
	_, got, _ := status.ContainerStatuses(in)
	require.Equal(t, "the runtime's", got[0].State.Terminated.Message)
}
