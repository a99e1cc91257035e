package status_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/status"
)

// fullPod is the pod of which full is a status.
func fullPod() *corev1.Pod {
	pod := newPod("Always", "a", "b", "c")
	pod.Spec.InitContainers = []corev1.Container{{Name: "z"}, {Name: "y"}}
	return pod
}

// full is a status in which every field that this package writes is set.
func full() *corev1.PodStatus {
	pod := fullPod()
	seen := runningIn("a", "b")
	seen.Containers = append(seen.Containers, container("c", "1", created, 0), container("z", "1", exited, 0), restarted(container("b", "0", exited, 1), 0))
	s := status.Generate(status.Input{Pod: pod, Runtime: seen, RuntimeName: "containerd", NodeIPs: []string{"192.168.0.1"}, Now: at(0)})
	return &s
}

// TestEqual_ComparesEveryField sets each field of a status and its parts in turn. A field
// of a later version of the API fails here until Equal compares it. VolumeHealth is a
// field of v0.37 of the API. It does not exist in v0.36, and this package does not set
// it.
func TestEqual_ComparesEveryField(t *testing.T) {
	t.Parallel()
	ignored := []string{"Conditions", "ResourceClaimStatuses", "ExtendedResourceClaimStatus", "NodeAllocatableResourceClaimStatuses", "VolumeHealth"}
	everyField(t, ignored, func(s *corev1.PodStatus) any { return s })
	everyField(t, nil, func(s *corev1.PodStatus) any { return &s.ContainerStatuses[1] })
	everyField(t, nil, func(s *corev1.PodStatus) any { return &s.InitContainerStatuses[0] })
	everyField(t, nil, func(s *corev1.PodStatus) any { return s.InitContainerStatuses[0].State.Terminated })
	everyField(t, nil, func(s *corev1.PodStatus) any { return s.ContainerStatuses[2].State.Waiting })
	everyField(t, nil, func(s *corev1.PodStatus) any { return s.ContainerStatuses[0].State.Running })
	everyField(t, nil, func(s *corev1.PodStatus) any { return s.ContainerStatuses[0].User.Linux })
	everyField(t, nil, func(s *corev1.PodStatus) any { return s.ContainerStatuses[0].Resources })
	everyField(t, []string{"ObservedGeneration", "LastProbeTime", "LastTransitionTime"},
		func(s *corev1.PodStatus) any { return status.Condition(s.Conditions, corev1.PodReady) })
}

func everyField(t *testing.T, ignored []string, part func(*corev1.PodStatus) any) {
	t.Helper()
	pod, kind := fullPod(), reflect.TypeOf(part(full())).Elem()
	for i := range kind.NumField() {
		name := kind.Field(i).Name
		a, b := full(), full()
		require.True(t, status.Equal(pod, a, b))
		change(t, reflect.ValueOf(part(b)).Elem().Field(i))
		want := slices.Contains(ignored, name)
		require.Equal(t, want, status.Equal(pod, a, b), "%v.%s", kind, name)
		require.Equal(t, want, status.Equal(pod, b, a), "%v.%s", kind, name)
	}
}

// change gives v another value of any kind.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.Time{Time: at(12345)}))
		return
	case corev1.ContainerState:
		v.Set(reflect.ValueOf(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 55}}))
		return
	case corev1.ResourceList:
		v.Set(reflect.ValueOf(corev1.ResourceList{"x": resource.MustParse("1")}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	default:
		require.Fail(t, "this test does not support this kind of field", v.Kind().String())
	}
}

func TestEqual_IgnoresIrrelevantFields(t *testing.T) {
	t.Parallel()
	pod := fullPod()
	for name, edit := range map[string]func(*corev1.PodStatus){
		"order of containers":      func(s *corev1.PodStatus) { slices.Reverse(s.ContainerStatuses) },
		"order of init containers": func(s *corev1.PodStatus) { slices.Reverse(s.InitContainerStatuses) },
		"order of conditions":      func(s *corev1.PodStatus) { slices.Reverse(s.Conditions) },
		"a condition of others": func(s *corev1.PodStatus) {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: "other"})
		},
		"fractions of seconds": func(s *corev1.PodStatus) {
			s.StartTime.Time = s.StartTime.Add(time.Millisecond)
			s.ContainerStatuses[0].State.Running.StartedAt.Time = s.ContainerStatuses[0].State.Running.StartedAt.Add(time.Millisecond)
		},
		"nil and empty": func(s *corev1.PodStatus) {
			s.EphemeralContainerStatuses = []corev1.ContainerStatus{}
			s.ContainerStatuses[0].VolumeMounts = []corev1.VolumeMountStatus{}
		},
	} {
		a, b := full(), full()
		edit(b)
		before := b.DeepCopy()
		require.True(t, status.Equal(pod, a, b), name)
		require.True(t, status.Equal(pod, b, a), name)
		require.Equal(t, before, b, name)
	}
	a, b := full(), full()
	b.Conditions = b.Conditions[1:]
	require.False(t, status.Equal(pod, a, b), "the removal of the node's condition must be a difference")
	require.False(t, status.Equal(pod, b, a), "the addition of the node's condition must be a difference")
	twice := full()
	twice.ContainerStatuses[1] = twice.ContainerStatuses[0]
	require.False(t, status.Equal(pod, a, twice), "a duplicate name must be a difference")
	require.False(t, status.Equal(pod, twice, a), "a duplicate name must be a difference")
}

func TestNormalize_SharesTheMessageLimit(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{}
	s := &corev1.PodStatus{}
	long := strings.Repeat("x", 4096)
	pod.Spec.Containers = make([]corev1.Container, 40)
	pod.Spec.InitContainers = make([]corev1.Container, 6)
	pod.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 2)
	for range 30 { // the other containers have no status yet
		st := corev1.ContainerStatus{Name: "c"}
		st.State.Terminated = &corev1.ContainerStateTerminated{Message: long}
		st.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: "short"}
		s.ContainerStatuses = append(s.ContainerStatuses, st)
	}
	whole := s.DeepCopy()
	status.Normalize(pod, s)
	require.True(t, status.Equal(pod, whole, s))
	for _, st := range s.ContainerStatuses {
		require.Len(t, st.State.Terminated.Message, status.MaxTerminationMessageBytes/48)
		require.Equal(t, "short", st.LastTerminationState.Terminated.Message)
	}
}

func TestNormalize_OrdersAndTruncates(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "z"}, {Name: "a"}}}}
	moment := metav1.Time{Time: time.Unix(10, 999)}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: moment, FinishedAt: moment}}
	s := &corev1.PodStatus{
		StartTime:             &metav1.Time{Time: time.Unix(10, 999)},
		Conditions:            []corev1.PodCondition{{LastProbeTime: moment, LastTransitionTime: moment}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "?"}, {Name: "a"}, {Name: "z", State: ended}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "z"}, {Name: "a", State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: moment},
		}}},
		EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "z"}, {Name: "a"}},
	}
	status.Normalize(pod, s)
	whole := metav1.Time{Time: time.Unix(10, 0)}
	require.Equal(t, &whole, s.StartTime)
	require.Equal(t, []corev1.PodCondition{{LastProbeTime: whole, LastTransitionTime: whole}}, s.Conditions)
	require.Equal(t, []string{"z", "a", "?"}, names(s.InitContainerStatuses))
	require.Equal(t, []string{"a", "z"}, names(s.ContainerStatuses))
	require.Equal(t, []string{"a", "z"}, names(s.EphemeralContainerStatuses))
	require.Equal(t, whole, s.InitContainerStatuses[0].State.Terminated.FinishedAt)
	require.Equal(t, whole, s.ContainerStatuses[0].State.Running.StartedAt)
}

func names(list []corev1.ContainerStatus) (out []string) {
	for i := range list {
		out = append(out, list[i].Name)
	}
	return out
}

func FuzzNormalize(f *testing.F) {
	// Long messages are repetitions of short messages, because the fuzzer takes minutes to
	// shorten an input of many bytes.
	f.Add("last words", uint16(1), uint8(1), int64(1))
	f.Add("é", uint16(7000), uint8(1), int64(-1))
	f.Add("\xf0\x9f\x92\xa9\xf0\x9f", uint16(4000), uint8(7), int64(1_700_000_000_123_456_789))
	f.Add("\xff\xfe", uint16(1), uint8(0), int64(0))
	f.Fuzz(func(t *testing.T, part string, times uint16, containers uint8, ns int64) {
		message := strings.Repeat(part, min(int(times), 2*status.MaxTerminationMessageBytes/max(len(part), 1)))
		pod := &corev1.Pod{}
		given := &corev1.PodStatus{StartTime: &metav1.Time{Time: time.Unix(0, ns)}}
		for i := range containers % 8 {
			st := corev1.ContainerStatus{Name: string('a' + rune(i%26)), State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: message, FinishedAt: metav1.Time{Time: time.Unix(ns, 5)}},
			}}
			given.ContainerStatuses = append(given.ContainerStatuses, st)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: st.Name})
		}
		once := given.DeepCopy()
		status.Normalize(pod, once)
		twice := once.DeepCopy()
		status.Normalize(pod, twice)
		require.Equal(t, once, twice, "Normalize must be idempotent")
		require.True(t, status.Equal(pod, given, once), "Equal must ignore the changes of Normalize")
		total := 0
		for _, st := range once.ContainerStatuses {
			total += len(st.State.Terminated.Message)
			require.True(t, utf8.ValidString(st.State.Terminated.Message))
		}
		require.LessOrEqual(t, total, status.MaxTerminationMessageBytes)
	})
}
