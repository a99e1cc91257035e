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

// plausible checks the CPU and memory usage of a container or pod.
func (p *probe) plausible(cpu *runtimeapi.CpuUsage, memory *runtimeapi.MemoryUsage) {
	p.Helper()
	p.must(cpu.GetUsageCoreNanoSeconds() != nil, "eviction: cannot get CPU usage", "%v", cpu)
	p.must(memory.GetWorkingSetBytes().GetValue() > 0, "eviction: cannot rank pods by memory usage", "%v", memory)
	p.closeTo(p.clock.Now(), cpu.GetTimestamp())
	p.closeTo(p.clock.Now(), memory.GetTimestamp())
}

func checkContainerStats(p *probe) {
	id := p.launch(p.runPod(), "app", p.Sleeper)
	r, err := p.rt.ContainerStats(p.call(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
	p.optional(err, "eviction: cannot get the stats of a container")
	p.must(r.GetStats().GetAttributes().GetId() == id, "eviction: mistakes one container for another", "%v", r)
	p.must(r.GetStats().GetAttributes().GetLabels()[labelName] == "app", "eviction: cannot find the pod of a container", "%v", r)
	p.plausible(r.GetStats().GetCpu(), r.GetStats().GetMemory())
	_, err = p.rt.ContainerStats(p.call(), &runtimeapi.ContainerStatsRequest{ContainerId: unknownID})
	p.must(err != nil, "eviction: a removed container has stats", "no error")
}

func checkPodStats(p *probe) {
	pod := p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	r, err := p.rt.PodSandboxStats(p.call(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: pod.id})
	p.optional(err, "eviction: cannot get the stats of a pod")
	p.must(r.GetStats().GetAttributes().GetId() == pod.id && sameMetadata(r.GetStats().GetAttributes().GetMetadata(), pod.config.GetMetadata()),
		"eviction: mistakes one pod for another", "%v", r)
	p.plausible(r.GetStats().GetLinux().GetCpu(), r.GetStats().GetLinux().GetMemory())
	inside := r.GetStats().GetLinux().GetContainers()
	p.must(len(inside) == 1 && inside[0].GetAttributes().GetId() == id, "eviction: the stats of a pod miss a container", "%v", inside)
	_, err = p.rt.PodSandboxStats(p.call(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: unknownID})
	p.code(codes.NotFound, err, "eviction: cannot distinguish a removed pod from a failing runtime")
}

func checkListedStats(p *probe) {
	pod, done := p.runPod(), p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	p.ended(p.launch(done, "done", p.Completer))
	containers, err := p.rt.ListContainerStats(p.call(), &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: p.ourContainers().GetLabelSelector()},
	})
	p.optional(err, "eviction: cannot list the stats of containers")
	seen := 0
	for _, s := range containers.GetStats() {
		if s.GetAttributes().GetId() == id {
			seen++
			p.plausible(s.GetCpu(), s.GetMemory())
		}
	}
	p.must(seen == 1, "eviction: the stats of a container are not listed exactly once", "%d times in %v", seen, containers)
	pods, err := p.rt.ListPodSandboxStats(p.call(), &runtimeapi.ListPodSandboxStatsRequest{
		Filter: &runtimeapi.PodSandboxStatsFilter{LabelSelector: p.ourPods().GetLabelSelector()},
	})
	p.optional(err, "eviction: cannot list the stats of pods")
	seen = 0
	for _, s := range pods.GetStats() {
		if s.GetAttributes().GetId() == pod.id {
			seen++
			p.plausible(s.GetLinux().GetCpu(), s.GetLinux().GetMemory())
		}
	}
	p.must(seen == 1, "eviction: the stats of a pod are not listed exactly once", "%d times in %v", seen, pods)
}
