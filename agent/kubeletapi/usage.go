package kubeletapi

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// maxFormBytes is the maximum size of the body of a request to /stats/summary.
const maxFormBytes = 4 << 10

// summary responds with the kubelet's stats summary. Like the kubelet, it also reads its parameter
// from the form in the body of a POST request.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		refuse(w, badRequestf("parse form failed: %v", err))
		return
	}
	summary, err := s.cfg.Agent.Summary(r.Context())
	switch {
	case summary == nil:
		refuse(w, errors.Join(errors.New("could not measure the node"), err))
		return
	case err != nil:
		s.cfg.Logger.DebugContext(r.Context(), "the stats summary is incomplete", "err", err)
	}
	// The kubelet ignores all values except "true", and clients rely on that.
	if v := r.Form["only_cpu_and_memory"]; len(v) == 1 && v[0] == "true" {
		summary = cpuAndMemory(summary)
	}
	writeJSON(w, summary)
}

// cpuAndMemory returns a summary with only CPU, memory and swap, which autoscalers use.
func cpuAndMemory(all *statsapi.Summary) *statsapi.Summary {
	containers := func(in []statsapi.ContainerStats) (out []statsapi.ContainerStats) {
		for _, c := range in {
			out = append(out, statsapi.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap})
		}
		return out
	}
	n := all.Node
	out := &statsapi.Summary{
		Node: statsapi.NodeStats{
			NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU, Memory: n.Memory, Swap: n.Swap,
			SystemContainers: containers(n.SystemContainers),
		},
		Pods: []statsapi.PodStats{},
	}
	for _, p := range all.Pods {
		out.Pods = append(out.Pods, statsapi.PodStats{
			PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Swap: p.Swap,
			Containers: containers(p.Containers),
		})
	}
	return out
}

// podUsage is the resource usage of pods by UID, and of their containers by UID and name.
type podUsage struct {
	pods       map[types.UID]*api.Usage
	containers map[types.UID]map[string]api.Usage
}

// usage measures the pods. The result omits what can't be measured within measureTimeout.
func (s *Server) usage(ctx context.Context) podUsage {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	out := podUsage{map[types.UID]*api.Usage{}, map[types.UID]map[string]api.Usage{}}
	summary, err := s.cfg.Agent.Summary(ctx)
	if err != nil {
		s.cfg.Logger.DebugContext(ctx, "the stats summary is incomplete", "err", err)
	}
	if summary == nil {
		return out
	}
	for _, p := range summary.Pods {
		uid := types.UID(p.PodRef.UID)
		if u := usageOf(p.CPU, p.Memory, p.EphemeralStorage); u != nil {
			out.pods[uid] = u
		}
		out.containers[uid] = map[string]api.Usage{}
		for _, c := range p.Containers {
			if u := usageOf(c.CPU, c.Memory, c.Rootfs); u != nil {
				out.containers[uid][c.Name] = *u
			}
		}
	}
	return out
}

// usageOf converts the figures of a pod or a container. It returns nil if neither CPU nor
// memory was measured.
func usageOf(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, disk *statsapi.FsStats) *api.Usage {
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
	if disk != nil {
		u.EphemeralBytes, u.EphemeralInodes = ptr.Deref(disk.UsedBytes, 0), ptr.Deref(disk.InodesUsed, 0)
	}
	return &u
}
