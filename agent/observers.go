package agent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/internal/nodeloop"
	"github.com/kubeparts/kubeparts/agent/internal/podloop"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// pods returns the observers of the pod loop.
func (o Observers) pods() podloop.Observers {
	loop := podloop.Observers{
		Admission: o.Admission, Preemption: o.Preemption, Workers: o.Workers, Runner: o.Runner, Hooks: o.Hooks,
		Images: o.Images, PLEG: o.PLEG, Probes: o.Probes, Statuses: o.Statuses, Publisher: o.Publisher,
	}
	if o.Pod != nil {
		loop.Pod = func(m podloop.Move) {
			o.Pod(Move{Pod: m.Pod, From: State(m.From), To: State(m.To), Adopted: m.Adopted, Reason: m.Reason})
		}
	}
	return loop
}

// node returns the observers of the node loop. The argument victim returns the pod and the name
// of the container of an OOM kill.
func (o Observers) node(victim func(types.UID, string) (*corev1.Pod, string, bool)) nodeloop.Observers {
	loop := nodeloop.Observers{Eviction: o.Eviction, ImageGC: o.ImageGC, ContainerGC: o.ContainerGC, Logs: o.Logs, OOM: o.OOM}
	if o.Killed != nil {
		loop.Killed = func(k oomwatch.Kill) {
			pod, container, _ := victim(k.PodUID, k.ContainerID)
			o.Killed(OOMKill{Kill: k, Pod: pod, Container: container})
		}
	}
	return loop
}
