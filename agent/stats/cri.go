package stats

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// runtimeStats has the runtime's last response, by pod UID. It is immutable.
type runtimeStats struct {
	containers map[types.UID][]*runtimeapi.ContainerStats
}

// refreshRuntime gets the statistics of all containers. They include exited containers,
// whose writable layers still exist.
func (p *Provider) refreshRuntime(ctx context.Context) error {
	if p.cfg.Runtime == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := p.cfg.Runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return fmt.Errorf("list container stats: %w", err)
	}
	s := runtimeStats{containers: map[types.UID][]*runtimeapi.ContainerStats{}}
	for _, c := range all {
		if uid := crilabels.UID(c.GetAttributes().GetLabels()); uid != "" {
			s.containers[uid] = append(s.containers[uid], c)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime = s
	for _, c := range all {
		if n := c.GetCpu().GetUsageCoreNanoSeconds(); n != nil && c.GetCpu().GetTimestamp() > 0 {
			p.sample(c.GetAttributes().GetId(), time.Unix(0, c.GetCpu().GetTimestamp()), n.GetValue())
		}
	}
	return nil
}

// forgetSamples deletes samples that have not been updated for more than cpuMemory.
func (p *Provider) forgetSamples() {
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.cpu, func(_ string, s cpuSample) bool { return now.Sub(s.seen) > cpuMemory })
}

const (
	// cpuInterval is the minimum time over which a rate is calculated.
	cpuInterval = time.Second
	// cpuMemory is how long a sample stays stored after its last update.
	cpuMemory = 5 * time.Minute
)

// cpuSample is the value of a CPU counter at a point in time, with the rate since the
// previous sample.
type cpuSample struct {
	at    time.Time
	total uint64
	rate  value // nanocores
	seen  time.Time
}

// next returns the sample for a new value of the counter. If less than cpuInterval has passed since
// s, it returns s. If the counter was reset, it always returns a new sample, whose rate is unknown.
func (s cpuSample) next(at time.Time, total uint64) cpuSample {
	passed := at.Sub(s.at)
	if !s.at.IsZero() && passed < cpuInterval && total >= s.total {
		return s
	}
	next := cpuSample{at: at, total: total}
	if !s.at.IsZero() && passed > 0 && total >= s.total {
		next.rate = known(uint64(float64(total-s.total) / passed.Seconds()))
	}
	return next
}

// sample records a value of the counter with this key and returns the rate. Callers hold p.mu.
func (p *Provider) sample(key string, at time.Time, total uint64) value {
	s := p.cpu[key].next(at, total)
	s.seen = p.cfg.Clock.Now()
	p.cpu[key] = s
	return s.rate
}
