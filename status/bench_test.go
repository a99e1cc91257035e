package status_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/status"
)

// The kubelet's figures for comparison, 1.36.3 under the same kind of load: a
// SetPodStatus that changes nothing takes 17.4 µs and 100 allocations, one that
// flips readiness 42 to 53 allocations. Ours are to stay at or below 1.7 µs and 1
// allocation for the first, and 15 µs for Generate.

func benchInput() status.Input {
	return status.Input{
		Pod: newPod("Always", "a", "b", "c"), Runtime: runningIn("a", "b", "c"),
		RuntimeName: "containerd", NodeIPs: []string{"192.168.0.1"}, Now: at(0),
	}
}

func BenchmarkGenerate(b *testing.B) {
	b.Run("containers=3", func(b *testing.B) {
		in := benchInput()
		in.Previous = status.Generate(in)
		b.ReportAllocs()
		for b.Loop() {
			status.Generate(in)
		}
	})
}

func BenchmarkSetPodStatus(b *testing.B) {
	in := benchInput()
	pod, s := in.Pod, status.Generate(in)
	b.Run("unchanged/containers=3", func(b *testing.B) {
		m, _ := status.New(status.Config{})
		m.SetPodStatus(pod, s)
		b.ReportAllocs()
		for b.Loop() {
			m.SetPodStatus(pod, s)
		}
	})
	b.Run("changed/containers=3", func(b *testing.B) {
		m, _ := status.New(status.Config{})
		unready := *s.DeepCopy()
		status.Condition(unready.Conditions, corev1.PodReady).Status = corev1.ConditionFalse
		two := []corev1.PodStatus{s, unready}
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			m.SetPodStatus(pod, two[i&1])
			i++
		}
	})
}

func BenchmarkGetPodStatus(b *testing.B) {
	b.Run("containers=3", func(b *testing.B) {
		in := benchInput()
		m, _ := status.New(status.Config{})
		m.SetPodStatus(in.Pod, status.Generate(in))
		b.ReportAllocs()
		for b.Loop() {
			m.GetPodStatus(in.Pod.UID)
		}
	})
}

func TestAChangedStatusCostsAtMostTenAllocations(t *testing.T) {
	in := benchInput()
	s := status.Generate(in)
	unready := *s.DeepCopy()
	status.Condition(unready.Conditions, corev1.PodReady).Status = corev1.ConditionFalse
	m, err := status.New(status.Config{})
	if err != nil {
		t.Fatal(err)
	}
	i, two := 0, []corev1.PodStatus{s, unready}
	if n := testing.AllocsPerRun(100, func() { m.SetPodStatus(in.Pod, two[i&1]); i++ }); n > 10 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnUnchangedStatusCostsAtMostOneAllocation(t *testing.T) {
	in := benchInput()
	s := status.Generate(in)
	m, err := status.New(status.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m.SetPodStatus(in.Pod, s)
	if n := testing.AllocsPerRun(100, func() { m.SetPodStatus(in.Pod, s) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
