package stats

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// Summary measures the node and the given pods. It returns what the kubelet serves as
// /stats/summary, for metrics-server and kubectl top. Nil pods are skipped. Summary calls the
// runtime now; disk usage comes from the last refresh. Figures that can't be measured are nil.
// Summary always returns a summary, and an error if something failed unexpectedly. If the runtime
// does not report the rate usageNanoCores, the rate is nil until two samples at least a second
// apart exist. Calls of Summary and Refresh record samples.
//
// The node's available memory is the Estimator's, as in Node. The node's working set is the
// working set of the root cgroup.
func (p *Provider) Summary(ctx context.Context, pods []*corev1.Pod) (*statsapi.Summary, error) {
	node, errNode := p.node.measure(nil)
	memoryAvailable := observed(node, eviction.MemoryAvailable)
	errRuntime := p.refreshRuntime(ctx)
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod == nil })
	sandboxes, errSandboxes := p.sandboxStats(ctx, pods)
	p.podsMu.Lock()
	measured := p.measurePods(nil, pods)
	p.podsMu.Unlock()

	h, parent := p.node.where()
	s := summarizer{p: p, reader: cgroupReader{hierarchy: h}, now: metav1.NewTime(p.cfg.Clock.Now())}
	out := &statsapi.Summary{Node: s.node(memoryAvailable, parent), Pods: []statsapi.PodStats{}}
	for i, pod := range pods { // measured has the same order
		out.Pods = append(out.Pods, s.pod(pod, measured[i], sandboxes[pod.UID], h.findPod(parent, pod.UID)))
	}
	return out, errors.Join(errNode, errRuntime, errSandboxes)
}

func observed(node eviction.NodeStats, signal eviction.Signal) value {
	for _, o := range node.Observations {
		if o.Signal == signal {
			return known(uint64(o.Available))
		}
	}
	return value{}
}

// sandboxStats gets the runtime's statistics of the pods' sandboxes, which include the network
// figures. If a pod has several sandboxes, the last sandbox in the list is used. A runtime may
// refuse the whole list because of one sandbox without a cgroup. sandboxStats then requests
// each pod separately, and returns the error of the list if a pod's request also fails.
func (p *Provider) sandboxStats(ctx context.Context, pods []*corev1.Pod) (map[types.UID]*runtimeapi.LinuxPodSandboxStats, error) {
	if p.cfg.Runtime == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := p.cfg.Runtime.ListPodSandboxStats(ctx, nil)
	if err != nil && ctx.Err() == nil {
		failed := 0
		for _, pod := range pods {
			own := &runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{crilabels.PodUID: string(pod.UID)}}
			its, errPod := p.cfg.Runtime.ListPodSandboxStats(ctx, own)
			if errPod != nil {
				failed++
			}
			all = append(all, its...)
		}
		if failed == 0 {
			err = nil
		}
	}
	byPod := make(map[types.UID]*runtimeapi.LinuxPodSandboxStats, len(all))
	for _, s := range all {
		uid := crilabels.UID(s.GetAttributes().GetLabels())
		if uid == "" {
			uid = types.UID(s.GetAttributes().GetMetadata().GetUid())
		}
		byPod[uid] = s.GetLinux()
	}
	if err != nil {
		err = fmt.Errorf("list pod sandbox stats: %w", err)
	}
	return byPod, err
}

// summarizer creates one summary.
type summarizer struct {
	p      *Provider
	reader cgroupReader
	now    metav1.Time

	nodeFS, writeFS *fsUsage
}

func (s *summarizer) node(available value, pods string) statsapi.NodeStats {
	memory := s.memory("/")
	memory.AvailableBytes = available.ptr()
	proc := s.p.cfg.ProcRoot
	memory.PSI = s.reader.pressureAt(filepath.Join(proc, "pressure", "memory"))
	cpu := s.cpu("/")
	cpu.PSI = s.reader.pressureAt(filepath.Join(proc, "pressure", "cpu"))
	n := statsapi.NodeStats{
		NodeName: s.p.cfg.NodeName, StartTime: metav1.NewTime(s.p.since),
		CPU: cpu, Memory: memory,
		IO:      s.io(s.reader.pressureAt(filepath.Join(proc, "pressure", "io"))),
		Network: s.nodeNetwork(), Swap: s.nodeSwap(),
	}
	if pods != "" {
		n.SystemContainers = []statsapi.ContainerStats{{
			Name: statsapi.SystemContainerPods, StartTime: n.StartTime, CPU: s.cpu(pods), Memory: s.memory(pods),
		}}
	}
	s.filesystems(&n)
	return n
}

func (s *summarizer) filesystems(n *statsapi.NodeStats) {
	probe := &s.p.node
	probe.mu.Lock()
	survey := probe.survey
	tasks := parseTasks(probe.read(&probe.loadavg))
	probe.mu.Unlock()

	n.Rlimit = &statsapi.RlimitStats{Time: s.now, MaxPID: intPtr(survey.maxTasks), NumOfRunningProcesses: intPtr(tasks)}
	measure := func(path string) (*fsUsage, *statsapi.FsStats) {
		u, err := statfs(path)
		if path == "" || err != nil {
			return nil, nil // the measurement of the signals has already returned this error
		}
		return &u, &statsapi.FsStats{
			Time: s.now, AvailableBytes: u.available.ptr(), CapacityBytes: u.capacity.ptr(), UsedBytes: u.used.ptr(),
			InodesFree: u.inodesFree.ptr(), Inodes: u.inodes.ptr(), InodesUsed: u.inodes.minus(u.inodesFree).ptr(),
		}
	}
	var image, write *statsapi.FsStats
	s.nodeFS, n.Fs = measure(survey.nodeFS)
	_, image = measure(survey.imageFS)
	s.writeFS, write = measure(survey.writeFS)
	setUse(image, survey.imageUse)
	setUse(write, survey.writeUse)
	n.Runtime = &statsapi.RuntimeStats{ImageFs: image, ContainerFs: write}
}

// setUse replaces the usage of fs by the usage that the runtime reports for its own files, if
// the runtime reports it.
func setUse(fs *statsapi.FsStats, use *runtimeapi.FilesystemUsage) {
	if fs != nil && use != nil {
		fs.UsedBytes, fs.InodesUsed = number64(use.GetUsedBytes()), number64(use.GetInodesUsed())
	}
}

func (s *summarizer) cpu(cgroup string) *statsapi.CPUStats {
	at := s.p.cfg.Clock.Now()
	total := s.reader.cpu(cgroup)
	if !total.ok {
		return &statsapi.CPUStats{Time: s.now}
	}
	return &statsapi.CPUStats{
		Time: metav1.NewTime(at), UsageCoreNanoSeconds: total.ptr(),
		UsageNanoCores: s.rate(cgroup, at, total.n), PSI: s.reader.pressure(cgroup, "cpu"),
	}
}

func (s *summarizer) rate(key string, at time.Time, total uint64) *uint64 {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.sample(key, at, total).ptr()
}

func (s *summarizer) memory(cgroup string) *statsapi.MemoryStats {
	at := s.p.cfg.Clock.Now()
	m := s.reader.memory(cgroup)
	return &statsapi.MemoryStats{
		Time: metav1.NewTime(at), AvailableBytes: m.limit.minus(m.workingSet()).ptr(),
		UsageBytes: m.usage.ptr(), WorkingSetBytes: m.workingSet().ptr(), RSSBytes: m.anon.ptr(),
		PageFaults: m.faults.ptr(), MajorPageFaults: m.majorFaults.ptr(), PSI: s.reader.pressure(cgroup, "memory"),
	}
}

func (s *summarizer) io(psi *statsapi.PSIStats) *statsapi.IOStats {
	if psi == nil {
		return nil
	}
	return &statsapi.IOStats{Time: s.now, PSI: psi}
}

func (s *summarizer) nodeSwap() *statsapi.SwapStats {
	b, err := readFile(filepath.Join(s.p.cfg.ProcRoot, "meminfo"), &s.reader.buf)
	if err != nil {
		return nil
	}
	m := parseMeminfo(b)
	return &statsapi.SwapStats{
		Time: s.now, SwapAvailableBytes: m.swapFree.ptr(), SwapUsageBytes: m.swapTotal.minus(m.swapFree).ptr(),
	}
}

// nodeNetwork returns the counters of the node's interfaces. The default interface is the
// interface of the default route.
func (s *summarizer) nodeNetwork() *statsapi.NetworkStats {
	// ProcRoot/self/net has the interfaces of this process's network namespace.
	net := filepath.Join(s.p.cfg.ProcRoot, "self", "net")
	b, err := readFile(filepath.Join(net, "dev"), &s.reader.buf)
	if err != nil {
		return nil
	}
	n := &statsapi.NetworkStats{Time: s.now, Interfaces: parseInterfaces(b)}
	b, err = readFile(filepath.Join(net, "route"), &s.reader.buf)
	if err != nil {
		return n // no IPv4, so there is no default interface
	}
	route := parseDefaultRoute(b)
	for _, i := range n.Interfaces {
		if i.Name == route {
			n.InterfaceStats = i
		}
	}
	return n
}

func intPtr(v value) *int64 {
	if !v.ok {
		return nil
	}
	n := toInt(v.n)
	return &n
}

func number64(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	n := v.GetValue()
	return &n
}
