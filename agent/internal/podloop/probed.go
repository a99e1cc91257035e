package podloop

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/prober"
)

// probeHistory is the number of stored runs of each probe.
const probeHistory = 4

// Probe is a probe of a container with its results.
type Probe struct {
	Container string
	Kind      prober.Kind
	Spec      *corev1.Probe
	// Result is the result for the newest instance of the container.
	Result prober.Result
	// Runs are the most recent runs, oldest first.
	Runs []prober.Record
}

// Probes returns the probes of a pod. They are in the order of the containers in the spec, and for
// each container in the order of [prober.Kind]. Probes returns nil for an unknown pod.
func (l *Loop) Probes(uid types.UID) []Probe {
	r, known := l.record(uid)
	if !known {
		return nil
	}
	return l.probesOf(l.view(r))
}

func (l *Loop) probesOf(p Pod) (all []Probe) {
	for c, isInit := range podspec.Containers(&p.Spec.Spec) {
		if isInit && !podspec.IsSidecar(c) {
			continue // an init container is probed only if it is a sidecar
		}
		id := p.Runtime.Container(c.Name).GetId()
		for kind, spec := range []*corev1.Probe{
			prober.Startup: c.StartupProbe, prober.Readiness: c.ReadinessProbe, prober.Liveness: c.LivenessProbe,
		} {
			if spec == nil {
				continue
			}
			key := prober.Key{PodUID: p.Spec.UID, Container: c.Name, Kind: prober.Kind(kind)}
			all = append(all, Probe{
				Container: c.Name, Kind: key.Kind, Spec: spec,
				Result: l.probes.Result(key, id), Runs: l.probes.History(key),
			})
		}
	}
	return all
}
