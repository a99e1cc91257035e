package prober

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// lasts returns the duration of a step, so that both sides have the same time after it. After
// a restart, our manager spreads first runs over ten seconds.
func lasts(s step, w world) time.Duration {
	d := time.Duration(0)
	for i := range w.Containers {
		for k := range kinds {
			if (s.Op == opAll || s.Op == opProbe && i == s.Container && k == int(s.Kind)) && s.outcomeOf(i, k) == hangs {
				d += hang
			}
		}
	}
	for _, other := range w.Steps {
		if other.Op == opRestart {
			return d + 11*time.Second
		}
	}
	return d
}

// adds reports whether the pod's worker calls AddPod before the step. It always does
// before it starts a container.
func (s step) adds(ending bool) bool {
	return !ending && (!s.NoSync || s.Op == opCreate || s.Op == opStart || s.Op == opReplace || s.Op == opAdd)
}

// removes reports whether the step removes the pod.
func (s step) removes() bool { return s.Op == opRemove || s.Op == opCleanup && !s.Keep }

// outcomeFor returns the result of a command.
func (s step) outcomeFor(command []string) outcome {
	for k := range kinds {
		if prober.Kind(k).String() == command[2] {
			return s.outcomeOf(int(command[1][0]-'a'), k)
		}
	}
	return s.Outcome
}

// noteStatus records the parts of a status that depend on probes.
func noteStatus(f judge.Facts, st corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for _, c := range list {
			f["status "+c.Name+"/Started"] = strconv.FormatBool(c.Started != nil && *c.Started)
			f["status "+c.Name+"/Ready"] = strconv.FormatBool(c.Ready)
		}
	}
}

// eventText returns an event as one line.
func eventText(object runtime.Object, eventtype, reason, message string) string {
	ref, _ := object.(*corev1.ObjectReference)
	return fmt.Sprintf("%s/%s %s %s %s %s %s %s: %s", ref.Namespace, ref.Name, ref.Kind, ref.APIVersion, ref.UID, ref.FieldPath, eventtype, reason, message)
}

// tell applies a probe result to a status. It reports whether the result changes the status,
// or the container must be killed.
func tell(st *corev1.ContainerStatus, k prober.Kind, good bool) bool {
	was := false
	switch k {
	case prober.Startup:
		was = st.Started != nil && *st.Started
		st.Started = &good
	case prober.Readiness:
		was, st.Ready = st.Ready, good
	case prober.Liveness:
		return !good
	}
	return was != good
}
