package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/describe"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

const (
	// runtimeGrace is for how long the runtime may be down before the node counts as
	// not ready, as with the kubelet: one that is restarted is back by then.
	runtimeGrace = 30 * time.Second
	// usagePatience is how long a look at the node waits for a runtime that is slow.
	usagePatience = 2 * time.Second
)

// nodeState is what is remembered of the node between two looks.
type nodeState struct {
	mu       sync.Mutex
	decision eviction.Decision // the last one
	missing  error             // what could not be measured for it
	status   *corev1.NodeStatus
}

// evaluated keeps what the last look at the node has found.
func (n *nodeState) evaluated(d eviction.Decision, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.decision, n.missing = d, err
}

func (n *nodeState) last() eviction.Decision {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.decision
}

// next computes the node's status from the last one, and returns a copy.
func (n *nodeState) next(f nodestatus.Facts) corev1.NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	f.Pressure = n.decision.Conditions
	n.status = nodestatus.Next(n.status, f, time.Now())
	return *n.status.DeepCopy()
}

// statusNow returns the node's status. It is computed whenever the runtime was asked, so
// that the times of its conditions are right whoever looks when.
func (a *agent) statusNow() corev1.NodeStatus {
	f := nodestatus.Facts{
		Capacity: a.capacity(), MaxPods: a.opts.policies.MaxPods, Reserved: a.reserved(),
		Info: a.nodeInfo(), Images: a.imageGC.Images(),
		Addresses: nodestatus.Addresses{Hostname: a.opts.nodeName},
		Runtime:   a.features.answers(),
	}
	f.Runtime.Version = &runtimeapi.VersionResponse{RuntimeName: a.node.runtimeName, RuntimeVersion: a.node.runtimeVersion}
	for _, text := range a.host.ips {
		if ip, err := netip.ParseAddr(text); err == nil {
			f.Addresses.NodeIPs = append(f.Addresses.NodeIPs, ip)
		}
	}
	if err := a.pleg.Healthy(); err != nil {
		f.Problems.Health = []string{"PLEG is not healthy: " + err.Error()}
	}
	return a.state.next(f)
}

// runtimeDown is the runtime's trouble once it counts. What is not known yet is none
// until then either.
func (a *agent) runtimeDown() error {
	since, err := a.runtime.whole()
	down := time.Since(since)
	if err == nil || down < runtimeGrace {
		return nil
	}
	return fmt.Errorf("container runtime is down for %v: %w", down.Round(time.Second), err)
}

// nodeNow is the node as a kubelet would report it.
func (a *agent) nodeNow() corev1.Node {
	return describe.Node(describe.NodeFacts{
		Name: a.opts.nodeName, Created: a.began, Status: a.statusNow(),
		Labels: map[string]string{
			corev1.LabelHostname: a.opts.nodeName, corev1.LabelOSStable: goruntime.GOOS, corev1.LabelArchStable: goruntime.GOARCH,
		},
	})
}

// nodeInfo is what this machine is. Where there are no such files it is unknown.
func (a *agent) nodeInfo() corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID:       strings.TrimSpace(fileText("/etc/machine-id")),
		SystemUUID:      strings.TrimSpace(fileText("/sys/class/dmi/id/product_uuid")),
		BootID:          strings.TrimSpace(fileText("/proc/sys/kernel/random/boot_id")),
		KernelVersion:   strings.TrimSpace(fileText("/proc/sys/kernel/osrelease")),
		OSImage:         osImage(fileText("/etc/os-release")),
		KubeletVersion:  version(),
		OperatingSystem: goruntime.GOOS,
		Architecture:    goruntime.GOARCH,
	}
}

// osImage is the name of a system in its os-release file.
func osImage(release string) string {
	for line := range strings.Lines(release) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Unknown"
}

// version is this program's, as the Go tool has stamped it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// signals are what the last look at the node has found.
func (a *agent) signals() []api.Signal {
	bySignal := map[eviction.Signal]*api.Signal{}
	last := a.state.last()
	for _, r := range last.Thresholds {
		s := bySignal[r.Threshold.Signal]
		if s == nil {
			s = &api.Signal{Name: string(r.Threshold.Signal), Available: r.Observation.Available, Capacity: r.Observation.Capacity}
			switch at := r.Observation.Time; {
			case r.State == eviction.Unknown:
			case at.IsZero():
				s.Time = &last.At
			default:
				s.Time = &at
			}
			bySignal[r.Threshold.Signal] = s
		}
		t := api.Threshold{
			Text: string(r.Threshold.Signal) + "<" + r.Threshold.Value.String(), Value: r.Quantity,
			GraceSeconds: r.Threshold.GracePeriod.Seconds(),
		}
		if !r.Since.IsZero() {
			t.Since = &r.Since
		}
		s.Thresholds = append(s.Thresholds, t)
	}
	out := []api.Signal{}
	for _, name := range slices.Sorted(maps.Keys(bySignal)) {
		out = append(out, *bySignal[name])
	}
	return out
}

// planEviction looks at the node as eviction does, and does nothing about it.
func (a *agent) planEviction(ctx context.Context) (server.Plan, error) {
	e, err := a.answers.pressure.get(ctx)
	return e.decision, err
}

// evaluation is what eviction would do, and the facts that say so.
type evaluation struct {
	decision eviction.Decision
	facts    eviction.Observations
}

// evaluate decides what eviction would do now.
func (a *agent) evaluate(ctx context.Context) (evaluation, error) {
	node, err := a.measures.Node(ctx)
	if err != nil {
		a.log.DebugContext(ctx, "some figures of the node are missing", "err", err)
	}
	obs := eviction.Observations{Node: node, Pods: a.evictable(), PodStats: map[types.UID]*eviction.PodStats{}, CheckLimits: true}
	pods, err := a.measures.Pods(ctx, obs.Pods)
	for i := range pods {
		obs.PodStats[pods[i].UID] = &pods[i]
	}
	return evaluation{eviction.Evaluate(a.state.last().Next, obs, a.policy, time.Now()), obs}, err
}

// podUsage is what pods and their containers use.
type podUsage struct {
	pods       map[types.UID]*api.Usage
	containers map[types.UID]map[string]api.Usage
}

// usage asks what pods use. A runtime that does not answer keeps nobody from looking.
func (a *agent) usage(ctx context.Context) podUsage {
	ctx, cancel := context.WithTimeout(ctx, usagePatience)
	defer cancel()
	out := podUsage{map[types.UID]*api.Usage{}, map[types.UID]map[string]api.Usage{}}
	summary, _ := a.answers.summary.get(ctx) // what can't be measured is not shown
	if summary == nil {
		return out
	}
	for _, p := range summary.Pods {
		uid := types.UID(p.PodRef.UID)
		if u := usageOf(p.CPU, p.Memory); u != nil {
			if p.EphemeralStorage != nil {
				u.EphemeralBytes, u.EphemeralInodes = deref(p.EphemeralStorage.UsedBytes), deref(p.EphemeralStorage.InodesUsed)
			}
			out.pods[uid] = u
		}
		out.containers[uid] = map[string]api.Usage{}
		for _, c := range p.Containers {
			if u := usageOf(c.CPU, c.Memory); u != nil {
				if c.Rootfs != nil {
					u.EphemeralBytes, u.EphemeralInodes = deref(c.Rootfs.UsedBytes), deref(c.Rootfs.InodesUsed)
				}
				out.containers[uid][c.Name] = *u
			}
		}
	}
	return out
}

func usageOf(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats) *api.Usage {
	var u api.Usage
	if cpu != nil && cpu.UsageNanoCores != nil {
		u.Time, u.CPUCores = cpu.Time.Time, new(float64(*cpu.UsageNanoCores)/1e9)
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		u.Time, u.MemoryBytes = memory.Time.Time, *memory.WorkingSetBytes
	}
	if u.Time.IsZero() {
		return nil
	}
	return &u
}

func deref(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
