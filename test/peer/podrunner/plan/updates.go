package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A change is a change of one resource of a container or, without an ID, of the pod's cgroup.
type change struct {
	id, direction string // + for an increase, - for a decrease
}

// updateFacts adds the changes after all calls, and calls that change nothing. Only the
// direction determines the order: decreases make room for increases.
func (r *record) updateFacts(f judge.Facts, s *State) {
	was := map[string]*runtimeapi.LinuxContainerResources{"": s.Cgroup}
	now := map[string]*runtimeapi.LinuxContainerResources{"": s.Cgroup}
	var memory, cpu []string // changes by object, each at the position of its last change
	for _, u := range r.updates {
		if was[u.id] == nil {
			was[u.id], now[u.id] = s.container(u.id).Linux, s.container(u.id).Linux
		}
		before, after := now[u.id], merged(now[u.id], u.res)
		now[u.id] = after
		changesMemory, changesCPU := memoryGrows(before, after) != "", cpuGrows(before, after) != ""
		if changesMemory {
			memory = append(without(memory, u.id), u.id)
		}
		if changesCPU {
			cpu = append(without(cpu, u.id), u.id)
		}
		if !changesMemory && !changesCPU {
			f["resize nothing "+name(u.id)] = "yes"
		}
	}
	changed := func(resource string, ids []string, grows direction, text func(*runtimeapi.LinuxContainerResources) string) {
		var changes []change
		for _, id := range ids {
			to := grows(was[id], now[id])
			if to == "" {
				f["resize nothing "+name(id)] = "yes"
				continue
			}
			f["resize "+resource+" "+name(id)] = text(now[id])
			changes = append(changes, change{id, to})
		}
		orderFacts(f, resource, changes)
	}
	changed("memory", memory, memoryGrows, memoryText)
	changed("cpu", cpu, cpuGrows, cpuText)
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(ids, func(other string) bool { return other == id })
}

// A direction returns "+" if a resource increases, "-" if it decreases, and "" if it does not
// change.
type direction func(before, after *runtimeapi.LinuxContainerResources) string

func name(id string) string { return cmp.Or(id, "pod") }

func memoryText(r *runtimeapi.LinuxContainerResources) string {
	return limitText(r.GetMemoryLimitInBytes())
}

func cpuText(r *runtimeapi.LinuxContainerResources) string {
	return fmt.Sprintf("shares %d, quota %s", r.GetCpuShares(), limitText(r.GetCpuQuota()))
}

func limitText(limit int64) string {
	if limit <= 0 {
		return "none"
	}
	return fmt.Sprint(limit)
}

// orderFacts adds the order in which one resource is changed. It adds the pod's position only
// if all changes of the pod's cgroup come before, or all come after, those of the containers.
func orderFacts(f judge.Facts, resource string, changes []change) {
	isPod := func(c change) bool { return c.id == "" }
	var containers []string
	for _, c := range changes {
		if !isPod(c) {
			containers = append(containers, c.direction)
		}
	}
	if len(containers) == 0 {
		return
	}
	f["resize order of "+resource] = strings.Join(containers, "")
	first, last := slices.IndexFunc(changes, isPod), 0
	for i, c := range changes {
		if isPod(c) {
			last = i
		}
	}
	switch {
	case first < 0:
	case last < len(changes)-len(containers):
		f["resize order of pod and "+resource] = "first"
	case first >= len(containers):
		f["resize order of pod and "+resource] = "last"
	}
}

// grows returns the direction of a change. No limit is the highest value.
func grows(before, after int64) string {
	switch {
	case max(before, 0) == max(after, 0):
		return ""
	case uint64(before)-1 < uint64(after)-1:
		return "+"
	default:
		return "-"
	}
}

func memoryGrows(before, after *runtimeapi.LinuxContainerResources) string {
	return grows(before.GetMemoryLimitInBytes(), after.GetMemoryLimitInBytes())
}

// cpuGrows returns the direction of the limit or, if it does not change, of the shares.
func cpuGrows(before, after *runtimeapi.LinuxContainerResources) string {
	return cmp.Or(grows(before.GetCpuQuota(), after.GetCpuQuota()), grows(before.GetCpuShares(), after.GetCpuShares()))
}
