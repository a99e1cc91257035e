package conformance

import (
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func statsChecks() []check {
	return []check{
		{name: "stats/of-a-container", run: checkContainerStats},
		{name: "stats/of-a-pod", run: checkPodStats},
		{name: "stats/listed", run: checkListedStats},
	}
}

// plausible checks the figures that victims are chosen by.
func (p *probe) plausible(cpu *runtimeapi.CpuUsage, memory *runtimeapi.MemoryUsage) {
	p.Helper()
	p.must(cpu.GetUsageCoreNanoSeconds() != nil, "eviction: cannot tell who uses the CPU", "%v", cpu)
	p.must(memory.GetWorkingSetBytes().GetValue() > 0, "eviction: cannot rank by memory", "%v", memory)
	p.closeTo(p.clock.Now(), cpu.GetTimestamp())
	p.closeTo(p.clock.Now(), memory.GetTimestamp())
}

func checkContainerStats(p *probe) {
	id := p.launch(p.runPod(), "app", p.Sleeper)
	r, err := p.rt.ContainerStats(p.call(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
	p.optional(err, "eviction: cannot tell what a container uses")
	p.must(r.GetStats().GetAttributes().GetId() == id, "eviction: takes one container for another", "%v", r)
	p.must(r.GetStats().GetAttributes().GetLabels()[labelName] == "app", "eviction: cannot tell whose container it is", "%v", r)
	p.plausible(r.GetStats().GetCpu(), r.GetStats().GetMemory())
	_, err = p.rt.ContainerStats(p.call(), &runtimeapi.ContainerStatsRequest{ContainerId: unknownID})
	p.must(err != nil, "eviction: a container that is gone uses something", "no error")
}

func checkPodStats(p *probe) {
	pod := p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	r, err := p.rt.PodSandboxStats(p.call(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: pod.id})
	p.optional(err, "eviction: cannot tell what a pod uses")
	p.must(r.GetStats().GetAttributes().GetId() == pod.id && sameMetadata(r.GetStats().GetAttributes().GetMetadata(), pod.config.GetMetadata()),
		"eviction: takes one pod for another", "%v", r)
	p.plausible(r.GetStats().GetLinux().GetCpu(), r.GetStats().GetLinux().GetMemory())
	inside := r.GetStats().GetLinux().GetContainers()
	p.must(len(inside) == 1 && inside[0].GetAttributes().GetId() == id, "eviction: a pod's figures miss a container's", "%v", inside)
	_, err = p.rt.PodSandboxStats(p.call(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: unknownID})
	p.code(codes.NotFound, err, "eviction: cannot tell a pod that is gone from a runtime that fails")
}

func checkListedStats(p *probe) {
	pod, done := p.runPod(), p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	p.ended(p.launch(done, "done", p.Completer))
	containers, err := p.rt.ListContainerStats(p.call(), &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: p.ourContainers().GetLabelSelector()},
	})
	p.optional(err, "eviction: cannot tell what containers use")
	seen := 0
	for _, s := range containers.GetStats() {
		if s.GetAttributes().GetId() == id {
			seen++
			p.plausible(s.GetCpu(), s.GetMemory())
		}
	}
	p.must(seen == 1, "eviction: a container's figures are not listed once", "%d times in %v", seen, containers)
	pods, err := p.rt.ListPodSandboxStats(p.call(), &runtimeapi.ListPodSandboxStatsRequest{
		Filter: &runtimeapi.PodSandboxStatsFilter{LabelSelector: p.ourPods().GetLabelSelector()},
	})
	p.optional(err, "eviction: cannot tell what pods use")
	seen = 0
	for _, s := range pods.GetStats() {
		if s.GetAttributes().GetId() == pod.id {
			seen++
			p.plausible(s.GetLinux().GetCpu(), s.GetLinux().GetMemory())
		}
	}
	p.must(seen == 1, "eviction: a pod's figures are not listed once", "%d times in %v", seen, pods)
}
