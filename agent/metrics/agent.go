package metrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// Observers returns the observers for an agent.Config. They count events and then call the given
// observers. Call Observers once for each agent; the counters of all agents are added. See
// [Metrics.AddAgent] for the metrics that are read during a scrape.
func (m *Metrics) Observers(next agent.Observers) agent.Observers {
	o := next
	o.Workers, o.Runner, o.Hooks = m.Workers(next.Workers), m.Runner(next.Runner), m.Hooks(next.Hooks)
	o.Volumes, o.Preemption = m.Volumes(next.Volumes), m.Preemption(next.Preemption)
	o.Edited, o.Searched, o.Cgroups = chain2(m.edited, next.Edited), chain2(m.searched, next.Searched), chain2(m.cgroup, next.Cgroups)
	o.ShutdownStarted, o.ShutdownEnded = chain0(m.ShutdownStarted, next.ShutdownStarted), chain0(m.ShutdownEnded, next.ShutdownEnded)
	o.Images, o.PLEG, o.Probes = m.Images(next.Images), m.PLEG(next.PLEG), m.Prober(next.Probes)
	o.Statuses, o.Publisher = m.Statuses(next.Statuses), m.Publisher(next.Publisher)
	o.Eviction, o.ImageGC, o.ContainerGC = m.Eviction(next.Eviction), m.ImageGC(next.ImageGC), m.ContainerGC(next.ContainerGC)
	o.Logs, o.OOM = m.Logs(next.Logs), m.OOMWatch(next.OOM, unknownVictim)
	o.Killed = chain1(func(k agent.OOMKill) {
		m.Killed(k.Kill, func(types.UID, string) (*corev1.Pod, string, bool) { return k.Pod, k.Container, k.Pod != nil })
	}, next.Killed)
	o.Pod = chain1(func(move agent.Move) {
		if move.To == agent.Refused {
			m.Rejected(move.Reason)
		}
	}, next.Pod)
	return o
}

// unknownVictim is the finder for kills that the OOM watcher drops. It never finds a pod, so these
// kills are counted for the node.
func unknownVictim(types.UID, string) (*corev1.Pod, string, bool) { return nil, "", false }

// AddAgent adds an agent to the metrics that are read during a scrape, such as the agent's pods by
// state and the time of its last relist. The caller calls remove when the agent has stopped. Use
// AddAgent for an agent whose observers come from [Metrics.Observers]. AddAgent calls
// [Metrics.Add].
func (m *Metrics) AddAgent(a *agent.Agent) (remove func()) {
	return m.Add(Source{
		NodeName: a.Node().Name,
		Desired: func() (pods []*corev1.Pod) {
			for _, p := range a.Pods() {
				if p.Source != "" {
					pods = append(pods, p.Spec)
				}
			}
			return pods
		},
		Mirrors: func() int { return 0 },
		Known: func() map[types.UID]podworker.Known {
			known := map[types.UID]podworker.Known{}
			for _, p := range a.Pods() {
				if k, working := workOn(p); working {
					known[p.Spec.UID] = k
				}
			}
			return known
		},
		Observed: func() (seen []*podcache.Status) {
			for _, p := range a.Pods() {
				seen = append(seen, p.Runtime)
			}
			return seen
		},
		RelistedAt:    a.RelistedAt,
		CgroupVersion: a.CgroupVersion,
		LogBytes:      a.LogBytes,
	})
}

// workOn returns the state of a pod's worker. It returns false if the pod has no worker.
func workOn(p agent.Pod) (podworker.Known, bool) {
	k := podworker.Known{
		Orphan: p.Source == "", HasConfig: len(p.Spec.Spec.Containers) > 0, Static: podspec.IsStatic(p.Spec),
	}
	switch p.State {
	case agent.Admitted:
		k.Phase = podworker.Syncing
	case agent.Ending:
		k.Phase = podworker.Terminating
	case agent.Ended, agent.Removed:
		k.Phase = podworker.Finished
	case agent.Offered, agent.Refused, agent.Gone:
		return k, false
	}
	return k, true
}
