package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent/internal/nodeloop"
	"github.com/kubeparts/kubeparts/agent/internal/podloop"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// ErrUnknownPod is returned if no source defines the pod and the pod has no data left on the node.
var ErrUnknownPod = podloop.ErrUnknownPod

// ErrRuntimeStatusUnknown is the error of the health check "runtime" until the agent has requested the
// runtime's status for the first time.
var ErrRuntimeStatusUnknown = nodeloop.ErrRuntimeStatusUnknown

// Pods returns the pods that are defined by a source or have data left on the node, ordered by
// namespace and name.
func (a *Agent) Pods() []Pod {
	known := a.pods.Pods()
	pods := make([]Pod, 0, len(known))
	for _, p := range known {
		pods = append(pods, podOf(p))
	}
	return pods
}

// Pod returns the pod with this UID. It returns false if [Agent.Pods] would not return the pod.
func (a *Agent) Pod(uid types.UID) (Pod, bool) {
	p, known := a.pods.Pod(uid)
	if !known {
		return Pod{}, false
	}
	return podOf(p), true
}

// Probes returns the probes of a pod. Containers are in the order of the pod's spec, sidecars
// first, and each container's probes are in the order startup, readiness, liveness. Probes returns
// nil for an unknown pod.
func (a *Agent) Probes(pod types.UID) []Probe {
	var probes []Probe
	for _, p := range a.pods.Probes(pod) {
		probes = append(probes, Probe(p))
	}
	return probes
}

func podOf(p podloop.Pod) Pod {
	return Pod{Spec: p.Spec, Source: p.Source, State: State(p.State), Runtime: p.Runtime}
}

// Node returns the node as a kubelet would report it, after [Config].NodeStatus has modified it.
// It returns the same pointer until the node changes.
func (a *Agent) Node() *corev1.Node { return a.node.Node() }

// clusterNode returns the node for admission. It prefers the node in the API server, which has
// the labels and taints that other programs set. If that node cannot be read, it returns the
// agent's own node.
func (a *Agent) clusterNode(ctx context.Context) (*corev1.Node, error) {
	own, err := a.node.AwaitNode(ctx)
	if err != nil || a.cfg.Cluster.Node == nil {
		return own, err
	}
	node, err := a.cfg.Cluster.Node(ctx)
	if err == nil {
		return node, nil
	}
	a.cfg.Logger.DebugContext(ctx, "could not find the node in the cluster, admission uses the agent's own node", "node", a.cfg.NodeName, "err", err)
	return own, nil
}

// mounter returns the mounter of memory-backed volumes. If the host has no mounter, these volumes
// are directories on the disk.
func (c *Config) mounter() volumes.Mounter {
	if c.Host.Mounter == nil {
		return noMounts{}
	}
	return c.Host.Mounter
}

// noMounts mounts nothing, so that memory-backed volumes are directories on the disk.
type noMounts struct{}

// Tmpfs implements [volumes.Mounter].
func (noMounts) Tmpfs(string, int64) error { return nil }

// Unmount implements [volumes.Mounter].
func (noMounts) Unmount(string) error { return nil }

// Mounts implements [volumes.Mounter].
func (noMounts) Mounts() ([]volumes.MountPoint, error) { return nil, nil }

// CgroupVersion returns the version of cgroups on the machine: 1 or 2. It returns 0 while the
// facts of the machine are unknown.
func (a *Agent) CgroupVersion() int {
	switch facts := a.node.Facts(); {
	case facts.MemoryCapacityBytes == 0:
		return 0
	case facts.Cgroups.V2:
		return 2
	default:
		return 1
	}
}

// LogBytes returns the disk usage of the logs of each running pod's containers, as Host.Stats.Pods
// returns it. The host of package host measures logs in the background; a call of LogBytes reads no
// logs, but may wait two seconds for newer statistics of the runtime. Containers whose logs were not
// measured yet are omitted. Before Run, LogBytes returns nil.
func (a *Agent) LogBytes() (all []LogUsage) {
	ctx := a.running.Load()
	if ctx == nil || a.cfg.Host.Stats == nil {
		return nil
	}
	pods := a.pods.Active()
	// The error does not matter: the result has everything that could be measured.
	stats, _ := a.cfg.Host.Stats.Pods(*ctx, pods)
	byUID := map[types.UID]*corev1.Pod{}
	for _, p := range pods {
		byUID[p.UID] = p
	}
	for _, s := range stats {
		pod := byUID[s.UID]
		if pod == nil {
			continue
		}
		for _, c := range s.Containers {
			if c.Logs.Bytes.Known() {
				all = append(all, LogUsage{Pod: pod, Container: c.Name, Bytes: c.Logs.Bytes.Value})
			}
		}
	}
	return all
}

// RelistedAt returns the start time of the newest complete relist, or the zero time if no relist
// has completed yet.
func (a *Agent) RelistedAt() time.Time { return a.pods.RelistedAt() }

// Summary returns the kubelet's stats summary of the node and its pods. The summary may be up to
// a second old. If Summary returns an error, a summary that is not nil has the values that could
// be measured.
func (a *Agent) Summary(ctx context.Context) (*statsapi.Summary, error) { return a.node.Summary(ctx) }

// Explain returns why a pod is in its state, and what the agent will do next. To compute the pod's
// position in the eviction order, Explain measures the node and its pods. The error is
// [ErrUnknownPod] if the pod does not exist. If Explain returns another error, the Explanation has
// the facts that could be found.
func (a *Agent) Explain(ctx context.Context, pod types.UID) (Explanation, error) {
	e, err := a.pods.Explain(ctx, pod)
	if errors.Is(err, podloop.ErrUnknownPod) {
		return Explanation{}, fmt.Errorf("agent: %w", err)
	}
	ranking, errRanking := a.node.Ranking(ctx)
	explanation := Explanation{Pod: podOf(e.Pod), Why: e.Why, Plan: e.Plan, Eviction: ranking.Places(pod)}
	for _, s := range e.Next {
		explanation.Next = append(explanation.Next, Step(s))
	}
	if e.Pod.State.MayRun() {
		explanation.Rank = ranking.Words(pod)
	}
	if e.Pod.State.MayRun() || len(e.Next) > 0 { // the agent still needs the runtime for this pod
		explanation.Why = append(a.runtimeProblem(), explanation.Why...)
	}
	if err := errors.Join(err, errRanking); err != nil {
		return explanation, fmt.Errorf("agent: explain pod %s: %w", pod, err)
	}
	return explanation, nil
}

// runtimeProblem returns why the runtime cannot run pods, or nil if it can. It returns at most
// one reason: if the runtime does not answer, its pods cannot be listed either.
func (a *Agent) runtimeProblem() []string {
	if err := a.node.RuntimeReady(); err != nil {
		return []string{"the container runtime is not ready: " + strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	if err := a.pods.Healthy(); err != nil {
		return []string{"could not list the pods of the container runtime: " + err.Error()}
	}
	return nil
}

// Plan returns what eviction and garbage collection would do now. It changes nothing. If the
// method returns an error, the Plan has the parts that could be computed.
func (a *Agent) Plan(ctx context.Context) (Plan, error) {
	p, err := a.node.Plan(ctx)
	if err != nil {
		err = fmt.Errorf("agent: plan: %w", err)
	}
	return Plan(p), err
}

// PlanEviction returns what eviction would do now: the field Eviction of a [Plan]. It measures the
// node and its pods, and does not compute the plans of garbage collection.
func (a *Agent) PlanEviction(ctx context.Context) (eviction.Decision, error) {
	decision, err := a.node.PlanEviction(ctx)
	if err != nil {
		err = fmt.Errorf("agent: %w", err)
	}
	return decision, err
}

// Health returns the state of each part in a fixed order: first the runtime, then the parts that
// run pods, then the parts that manage the node.
func (a *Agent) Health() []Check {
	node, pods := a.node.Checks(), a.pods.Checks()
	checks := make([]Check, 0, len(node)+len(pods))
	checks = append(checks, Check(node[0])) // the runtime comes first
	for _, c := range pods {
		checks = append(checks, Check(c))
	}
	for _, c := range node[1:] {
		checks = append(checks, Check(c))
	}
	return checks
}
