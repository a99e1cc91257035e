package status_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

// parsed reads a status of the form "Phase Type=Status:Reason ...", with times t
// seconds after the start for all conditions.
func parsed(words string, t int64) *corev1.PodStatus {
	fields := strings.Fields(words)
	s := &corev1.PodStatus{Phase: corev1.PodPhase(fields[0])}
	for _, field := range fields[1:] {
		kind, rest, _ := strings.Cut(field, "=")
		value, reason, _ := strings.Cut(rest, ":")
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType(kind), Status: corev1.ConditionStatus(value), Reason: reason,
			LastTransitionTime: metav1.Time{Time: at(t)},
		})
	}
	return s
}

func printed(s *corev1.PodStatus) string {
	words := []string{string(s.Phase)}
	for _, c := range s.Conditions {
		word := fmt.Sprintf("%s=%s", c.Type, c.Status)
		if c.Reason != "" {
			word += ":" + c.Reason
		}
		words = append(words, fmt.Sprintf("%s@%d", word, c.LastTransitionTime.Unix()-at(0).Unix()))
	}
	return strings.Join(words, " ")
}

// shows returns a pod with a status as in the API server.
func shows(s *corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 4}, Status: *s}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, api, said, want string
		mayRun, held          bool
	}{
		{"no change", "Running", "Running", "Running", false, false},
		{"readiness", "Running Ready=True", "Running Ready=False", "Running Ready=False@2", false, false},
		{"others' condition kept", "Running x/y=True", "Running Ready=True", "Running x/y=True@1 Ready=True@2", false, false},
		{"others' condition changed there", "Running x/y=False", "Running x/y=True Ready=True", "Running x/y=False@1 Ready=True@2", false, false},
		{"others' condition gone there", "Running", "Running x/y=True", "Running", false, false},
		{"ours gone here", "Running Ready=True", "Running", "Running", false, false},
		{"disruption added with the end", "Running", "Failed DisruptionTarget=True:T", "Failed DisruptionTarget=True:T@3", false, false},
		{"disruption waits for the end", "Running", "Running DisruptionTarget=True:T", "Running", false, false},
		{"disruption waits while containers may run", "Running", "Failed DisruptionTarget=True:T", "Running", true, true},
		{"others' disruption preserved", "Running DisruptionTarget=True:E", "Running", "Running DisruptionTarget=True:E@1", false, false},
		{"others' disruption replaced at the end", "Running DisruptionTarget=True:E", "Failed DisruptionTarget=True:T", "Failed DisruptionTarget=True:T@1", false, false},
		{"others' disruption not replaced while running", "Running DisruptionTarget=True:E", "Running DisruptionTarget=True:T", "Running DisruptionTarget=True:E@1", false, false},
		{"others' disruption not replaced while containers may run", "Running DisruptionTarget=True:E", "Failed DisruptionTarget=True:T", "Running DisruptionTarget=True:E@1", true, true},
		{"disruption turns true at the end", "Running DisruptionTarget=False", "Failed DisruptionTarget=True:T", "Failed DisruptionTarget=True:T@3", false, false},
		{"failed is not ready", "Running Ready=True ContainersReady=True", "Failed Ready=True ContainersReady=True", "Failed Ready=False:PodFailed@3 ContainersReady=False:PodFailed@3", false, false},
		{"succeeded is not ready", "Running Ready=False", "Succeeded Ready=True", "Succeeded Ready=False:PodCompleted@1 ContainersReady=False:PodCompleted@3", false, false},
		{"a held phase keeps the reported readiness", "Running Ready=True", "Failed Ready=True", "Running Ready=True@2", true, true},
		{"the API's terminal phase stays", "Failed", "Running Ready=True", "Failed Ready=False:PodFailed@3 ContainersReady=False:PodFailed@3", false, false},
		{"the API's terminal phase does not become another", "Failed", "Succeeded", "Failed", false, false},
		{"a stored terminal phase is not held", "Failed", "Failed", "Failed", true, false},
		{"one condition is True, both become False", "Running", "Failed Ready=True ContainersReady=False:Why", "Failed Ready=False:PodFailed@3 ContainersReady=False:PodFailed@2", false, false},
		{"one condition is True, the missing condition is added", "Running", "Succeeded ContainersReady=True", "Succeeded ContainersReady=False:PodCompleted@3 Ready=False:PodCompleted@3", false, false},
		{"no condition is True", "Running", "Failed Ready=False:Why", "Failed Ready=False:Why@2", false, false},
	} {
		api, said := parsed(tc.api, 1), parsed(tc.said, 2)
		before, saidBefore := api.DeepCopy(), said.DeepCopy()
		got, held := status.Merge(shows(api), said, tc.mayRun, at(3))
		require.Equal(t, tc.want, printed(&got), tc.name)
		require.Equal(t, tc.held, held, tc.name)
		require.Equal(t, before, api)
		require.Equal(t, saidBefore, said)
		again, _ := status.Merge(shows(&got), said, tc.mayRun, at(4))
		require.Equal(t, printed(&got), printed(&again), "%s: Merge must be idempotent", tc.name)
	}
}

func TestMerge_KeepsDisruptionAndClaimsOfOtherWriters(t *testing.T) {
	t.Parallel()
	api, said := parsed("Running", 1), parsed("Failed", 2)
	api.Reason, api.Message, said.Reason, said.Message = "R", "M", "Evicted", "too much"
	api.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
	said.PodIP = "10.0.0.1"
	got, held := status.Merge(shows(api), said, true, at(3))
	require.True(t, held)
	require.Equal(t, []string{"Running", "R", "M", "10.0.0.1"}, []string{string(got.Phase), got.Reason, got.Message, got.PodIP})
	require.Equal(t, api.ResourceClaimStatuses, got.ResourceClaimStatuses)
	got, _ = status.Merge(shows(api), said, false, at(3))
	require.Equal(t, []string{"Failed", "Evicted", "too much"}, []string{string(got.Phase), got.Reason, got.Message})
}

func TestPatch_ContainsOnlyDifferences(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	pod.Status = *full()
	body, err := status.Patch(pod, full())
	require.NoError(t, err)
	require.Nil(t, body)

	pod.ResourceVersion = "7"
	next := full()
	ready := status.Condition(next.Conditions, corev1.PodReady)
	ready.Status, ready.Reason, ready.Message = "True", "", ""
	next.HostIP = ""
	next.PodIPs = []corev1.PodIP{{IP: "10.0.0.8"}}
	body, err = status.Patch(pod, next)
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"uid":"uid","resourceVersion":"7"},"status":{
		"hostIP":null,"podIPs":[{"$patch":"replace"},{"ip":"10.0.0.8"}],
		"conditions":[{"type":"Ready","status":"True","reason":null,"message":null}]}}`, string(body))
}

// random returns a normalized status of a pod with random values.
func random(r *rand.Rand, pod *corev1.Pod) *corev1.PodStatus {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	moment := func() metav1.Time { return metav1.Time{Time: at(r.Int64N(3))} }
	s := &corev1.PodStatus{
		Phase: corev1.PodPhase(pick("Pending", "Running", "Succeeded", "Failed")), Reason: pick("", "R"), Message: pick("", "M", "N"),
		HostIP: pick("", "h"), PodIP: pick("", "p"), QOSClass: corev1.PodQOSClass(pick("", "BestEffort")),
		NominatedNodeName: pick("", "n"), ObservedGeneration: r.Int64N(3),
	}
	if r.IntN(2) == 0 {
		s.Resize = "Proposed"
	}
	for _, ip := range []string{"1", "2"} {
		if r.IntN(2) == 0 {
			s.PodIPs, s.HostIPs = append(s.PodIPs, corev1.PodIP{IP: ip}), append(s.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	if r.IntN(2) == 0 {
		start := moment()
		s.StartTime = &start
		slices.Reverse(s.PodIPs)
	}
	list := func() (out corev1.ResourceList) {
		for _, name := range []corev1.ResourceName{"cpu", "memory"} {
			if r.IntN(2) == 0 {
				if out == nil {
					out = corev1.ResourceList{}
				}
				out[name] = resource.MustParse(pick("1", "2"))
			}
		}
		return out
	}
	requirements := func() *corev1.ResourceRequirements {
		if r.IntN(3) == 0 {
			return nil
		}
		return &corev1.ResourceRequirements{Limits: list(), Requests: list()}
	}
	s.AllocatedResources, s.Resources = list(), requirements()
	for _, kind := range []corev1.PodConditionType{
		"Ready", "ContainersReady", "Initialized", "DisruptionTarget", "PodResizePending", "x/y", "x/z",
	} {
		if r.IntN(3) > 0 {
			s.Conditions = append(s.Conditions, corev1.PodCondition{
				Type: kind, Status: corev1.ConditionStatus(pick("True", "False")), Reason: pick("", "R", "S"), Message: pick("", "M"),
				LastProbeTime: moment(), LastTransitionTime: moment(), ObservedGeneration: r.Int64N(2),
			})
		}
	}
	state := func() (out corev1.ContainerState) {
		switch r.IntN(4) {
		case 0:
			out.Waiting = &corev1.ContainerStateWaiting{Reason: pick("", "R")}
		case 1:
			out.Running = &corev1.ContainerStateRunning{StartedAt: moment()}
		case 2:
			out.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: r.Int32N(2), Message: strings.Repeat(pick("x", "é"), r.IntN(9000)), FinishedAt: moment(),
			}
		}
		return out
	}
	for _, to := range []*[]corev1.ContainerStatus{&s.ContainerStatuses, &s.InitContainerStatuses, &s.EphemeralContainerStatuses} {
		for _, name := range []string{"a", "b", "c"}[:r.IntN(4)] {
			st := corev1.ContainerStatus{
				Name: name, State: state(), LastTerminationState: state(), Ready: r.IntN(2) == 0, RestartCount: r.Int32N(3),
				ContainerID: pick("", "i"), AllocatedResources: list(), Resources: requirements(),
			}
			if r.IntN(2) == 0 {
				st.Started = new(r.IntN(2) == 0)
				st.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: r.Int64N(2), SupplementalGroups: []int64{1}}}
				st.VolumeMounts = []corev1.VolumeMountStatus{{Name: pick("v", "w"), MountPath: "/v"}}
				st.StopSignal = new(corev1.Signal(pick("SIGTERM", "SIGINT")))
			}
			*to = append(*to, st)
		}
	}
	status.Normalize(pod, s)
	return s
}

// checkMergeAndPatch checks the rules that hold for any two statuses.
func checkMergeAndPatch(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "1"}}
	api, said, mayRun := random(r, pod), random(r, pod), r.IntN(2) == 0
	pod.Status = *api
	before := pod.DeepCopy()
	merged, held := status.Merge(shows(api), said, mayRun, at(9))

	body, err := status.Patch(pod, &merged)
	require.NoError(t, err)
	require.Equal(t, before, pod)
	got := pod
	if body != nil {
		require.True(t, json.Valid(body))
		got, err = patched(pod, body)
		require.NoError(t, err, "seed %d: %s", seed, body)
	}
	again, err := status.Patch(got, &merged)
	require.NoError(t, err)
	require.Nil(t, again, "seed %d: after a patch was applied, the next patch must be empty", seed)
	stored := got.Status
	for _, s := range []*corev1.PodStatus{&stored, &merged} {
		s.Conditions = slices.Clone(s.Conditions)
		slices.SortFunc(s.Conditions, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	}
	require.True(t, equality.Semantic.DeepEqual(jsonOf(t, &stored), jsonOf(t, &merged)), "seed %d: applying the patch to the old status must result in the merged status\n%s\n%s\n%s", seed, body, jsonOf(t, &stored), jsonOf(t, &merged))

	require.Equal(t, held, mayRun && podspec.IsTerminal(said.Phase) && !podspec.IsTerminal(api.Phase))
	if podspec.IsTerminal(api.Phase) {
		require.Equal(t, api.Phase, merged.Phase, "seed %d: a terminal phase must not change", seed)
	}
	for _, c := range api.Conditions {
		if strings.HasPrefix(string(c.Type), "x/") {
			require.Equal(t, c, *status.Condition(merged.Conditions, c.Type), "seed %d: conditions of other writers must be kept", seed)
		}
	}
	twice, _ := status.Merge(shows(&merged), said, mayRun, at(10))
	require.True(t, status.Equal(pod, &merged, &twice), "seed %d: Merge must be idempotent", seed)
}

func jsonOf(t *testing.T, s *corev1.PodStatus) string {
	t.Helper()
	body, err := json.Marshal(s)
	require.NoError(t, err)
	return string(body)
}

func TestPatch_AppliedToTheObjectEqualsTheMergedStatus(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		checkMergeAndPatch(t, seed)
	}
}

func FuzzMergeAndPatch(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(checkMergeAndPatch)
}

// TestSetPodStatus_StoresANormalizedCopy also checks that neither the caller's status nor an
// earlier result changes.
func TestSetPodStatus_StoresANormalizedCopy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		w, pod := newWorld(t), newPod("Always", "a", "b", "c")
		pod.Spec.InitContainers = []corev1.Container{{Name: "c"}, {Name: "a"}, {Name: "b"}}
		for range 4 {
			given := *random(r, &corev1.Pod{}) // its containers are in another order than the containers of the pod
			given.Phase = "Running"
			given.Conditions = slices.DeleteFunc(given.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodResizePending
			})
			before := *given.DeepCopy()
			kept := slices.Clone(w.changes)
			var copies []corev1.PodStatus
			for _, c := range kept {
				copies = append(copies, *c.New.DeepCopy())
			}
			got, changed := w.SetPodStatus(pod, given)
			require.Equal(t, before, given, "seed %d: the input must not be modified", seed)
			for i := range kept {
				require.Equal(t, copies[i], kept[i].New, "seed %d: a delivered status must not be modified", seed)
			}
			want := *given.DeepCopy()
			status.Normalize(pod, &want)
			want.StartTime, want.ObservedGeneration = got.StartTime, got.ObservedGeneration
			if changed {
				for i := range want.Conditions {
					want.Conditions[i].LastTransitionTime = got.Conditions[i].LastTransitionTime
				}
				require.Equal(t, jsonOf(t, &want), jsonOf(t, &got), "seed %d", seed)
			}
		}
	}
}
