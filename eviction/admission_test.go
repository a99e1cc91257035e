package eviction_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle"
)

func TestAdmission(t *testing.T) {
	t.Parallel()
	taint := func(key string, op corev1.TolerationOperator, value string, effect corev1.TaintEffect) podOption {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: op, Value: value, Effect: effect})
		}
	}
	best, key := qos(corev1.PodQOSBestEffort), corev1.TaintNodeMemoryPressure
	for _, tt := range []struct {
		name               string
		pod                *corev1.Pod
		memory, disk, both bool // whether the pod is admitted under this pressure
	}{
		{"best effort", newPod("p", best), false, false, false},
		{"burstable", newPod("p"), true, false, false},
		{"guaranteed", newPod("p", qos(corev1.PodQOSGuaranteed)), true, false, false},
		{"critical", newPod("p", best, priority(2_000_000_000)), true, true, true},
		{"static", newPod("p", best, static), true, true, true},
		{"best effort that tolerates it", newPod("p", best, taint(key, corev1.TolerationOpExists, "", corev1.TaintEffectNoSchedule)), true, false, false},
		{"tolerates everything", newPod("p", best, taint("", corev1.TolerationOpExists, "", "")), true, false, false},
		{"tolerates the value that it has", newPod("p", best, taint(key, "", "", "")), true, false, false},
		{"tolerates another value", newPod("p", best, taint(key, corev1.TolerationOpEqual, "x", "")), false, false, false},
		{"tolerates another effect", newPod("p", best, taint(key, corev1.TolerationOpExists, "", corev1.TaintEffectNoExecute)), false, false, false},
		{"tolerates another taint", newPod("p", best, taint("x", corev1.TolerationOpExists, "", "")), false, false, false},
		{"tolerates no key by equality", newPod("p", best, taint("", corev1.TolerationOpEqual, "", "")), false, false, false},
		{"tolerates with an unknown operator", newPod("p", best, taint(key, "Lt", "", "")), false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i, want := range []bool{tt.memory, tt.disk, tt.both} {
				n := newNode(t)
				n.saw(eviction.MemoryAvailable, int64(i%2)*gi, 10*gi)
				n.saw(eviction.NodeFSAvailable, int64(1-(i+1)/2)*gi, 10*gi)
				m := newManager(t, n.config(hard(eviction.MemoryAvailable, gi), hard(eviction.NodeFSAvailable, gi)))
				attrs := lifecycle.PodAdmitAttributes{Pod: tt.pod}
				require.True(t, m.Admit(t.Context(), attrs).Admit, "before the first evaluation, all pods must be admitted")
				d := n.step(m, 0)
				got := m.Admit(t.Context(), attrs)
				require.Equal(t, want, got.Admit, "%v", d.Conditions)
				if !want {
					require.Equal(t, "Evicted", got.Reason)
					require.Equal(t, fmt.Sprintf("The node had condition: %v. ", d.Conditions), got.Message)
				}
			}
		})
	}
	require.Equal(t, lifecycle.UnexpectedAdmissionError,
		newManager(t, newNode(t).config()).Admit(t.Context(), lifecycle.PodAdmitAttributes{}).Reason)
}
