package conformance

import (
	"cmp"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func nodeChecks() []check {
	return []check{
		{name: "node/version", run: checkVersion},
		{name: "node/ready", run: checkReady},
		{name: "node/cgroup-driver", run: checkCgroupDriver},
	}
}

func checkVersion(p *probe) {
	r, err := p.rt.Version(p.call(), &runtimeapi.VersionRequest{})
	p.ok(err, "agent: does not start, because it cannot get the runtime's version")
	p.must(r.GetRuntimeName() != "" && r.GetRuntimeVersion() != "", "agent: cannot report the name and version of its runtime", "%v", r)
	p.must(r.GetRuntimeApiVersion() == "v1", "agent: supports v1 of the CRI only", "%v", r)
}

func checkReady(p *probe) {
	r, err := p.rt.Status(p.call(), &runtimeapi.StatusRequest{})
	p.ok(err, "agent: cannot get the status of the runtime")
	for _, want := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		seen := false
		for _, c := range r.GetStatus().GetConditions() {
			seen = seen || c.GetType() == want && c.GetStatus()
		}
		p.must(seen, "agent: the node never becomes ready, because of the runtime condition "+want, "%v", r.GetStatus().GetConditions())
	}
}

// checkCgroupDriver accepts Unimplemented: agents then use the driver of their own
// configuration.
func checkCgroupDriver(p *probe) {
	_, err := p.rt.RuntimeConfig(p.call(), &runtimeapi.RuntimeConfigRequest{})
	p.must(err == nil || grpcstatus.Code(err) == codes.Unimplemented,
		"podrunner: cannot get the cgroup driver, which decides the names of pods' cgroups", "%v", err)
}

func sandboxChecks() []check {
	return []check{
		{name: "sandbox/lifecycle", run: checkSandboxLife},
		{name: "sandbox/status-shows-config", run: checkSandboxEcho},
		{name: "sandbox/name-is-reserved-until-removal", run: checkSandboxName},
		{name: "sandbox/stop-and-remove-again", run: checkSandboxAgain},
		{name: "sandbox/unknown-ids", run: checkSandboxUnknown},
		{name: "sandbox/stop-ends-its-containers", run: checkSandboxStop},
		{name: "sandbox/remove-removes-containers", run: checkSandboxRemove},
		{name: "sandbox/addresses-differ", run: checkAddresses},
		{name: "sandbox/host-network", run: checkHostNetwork},
	}
}

func checkSandboxLife(p *probe) {
	pod := p.runPod()
	st := p.podStatus(pod.id)
	p.must(st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		"podrunner: recreates a pod again and again, because its sandbox is never ready", "%v", st)
	_, err := netip.ParseAddr(st.GetNetwork().GetIp())
	p.ok(err, "status: the pod has no IP")

	p.stopPod(pod.id)
	st = p.podStatus(pod.id)
	p.must(st.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		"podworker: treats a stopped pod as running, so the pod never terminates", "%v", st)

	p.removePod(pod.id)
	_, err = p.rt.PodSandboxStatus(p.call(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.id})
	p.code(codes.NotFound, err, "pleg: inspects a removed pod for ever, because its status is not NotFound")
	left := p.listPods(p.ourPods())
	p.must(len(left) == 0, "podworker: a removed pod is still listed, so it never terminates", "%v", left)
}

func checkSandboxEcho(p *probe) {
	before := p.clock.Now()
	pod := p.runPod()
	st := p.podStatus(pod.id)
	p.must(st.GetId() == pod.id, "pleg: mistakes one pod for another", "%s is %s", pod.id, st.GetId())
	p.must(sameMetadata(st.GetMetadata(), pod.config.GetMetadata()),
		"podcache: stores a pod under a wrong name", "%v for %v", st.GetMetadata(), pod.config.GetMetadata())
	p.must(contains(st.GetLabels(), pod.config.GetLabels()),
		"pleg: ignores a pod whose labels differ from those of its config", "%v for %v", st.GetLabels(), pod.config.GetLabels())
	p.must(contains(st.GetAnnotations(), pod.config.GetAnnotations()),
		"podrunner: loses the data in annotations", "%v for %v", st.GetAnnotations(), pod.config.GetAnnotations())
	p.closeTo(before, st.GetCreatedAt())
}

// contains reports whether the first map has all entries of the second map. The runtime may
// add entries: CRI-O adds labels to sandboxes.
func contains(shown, given map[string]string) bool {
	for key, value := range given {
		if got, ok := shown[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// closeTo checks that a timestamp differs by less than a day from the given time.
func (p *probe) closeTo(ours time.Time, stamp int64) {
	p.Helper()
	const day = 24 * time.Hour // clocks of two machines differ by less, a wrong unit differs by more
	p.must(time.Unix(0, stamp).Sub(ours).Abs() < day,
		"status, podrunner: restarts at the wrong time, because timestamps are not nanoseconds since 1970", "%d", stamp)
}

func sameMetadata(a, b *runtimeapi.PodSandboxMetadata) bool {
	return a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace() &&
		a.GetUid() == b.GetUid() && a.GetAttempt() == b.GetAttempt()
}

// checkSandboxName creates a second pod with the name of the first pod. It accepts an
// error or the id of the first pod, because CRI-O treats the second call as a repetition.
// checkContainerName does the same for containers.
func checkSandboxName(p *probe) {
	pod := p.runPod()
	again := func(breaks string) {
		p.Helper()
		r, err := p.rt.RunPodSandbox(p.call(), &runtimeapi.RunPodSandboxRequest{Config: pod.config})
		p.must(err != nil || r.GetPodSandboxId() == pod.id, breaks, "%s, then %s", pod.id, r.GetPodSandboxId())
	}
	again("podrunner: runs a pod twice after it missed the response to its creation")
	p.stopPod(pod.id)
	again("podrunner: two pods have the same name and attempt")
	all := p.listPods(p.ourPods())
	p.must(len(all) == 1, "podrunner: a pod exists although its creation failed", "%v", all)

	pod.config.Metadata.Attempt = 1
	second := p.runPodOf(pod.config)
	p.must(second.id != pod.id, "podcache: two attempts of a pod have the same id", "both are %s", pod.id)
	first, next := p.podStatus(pod.id), p.podStatus(second.id)
	p.must(cmp.Less(first.GetCreatedAt(), next.GetCreatedAt()),
		"podcache: mistakes an old sandbox for the current one", "%d, then %d", first.GetCreatedAt(), next.GetCreatedAt())

	p.removePod(pod.id)
	pod.config.Metadata.Attempt = 0
	p.runPodOf(pod.config) // fails if the removal has not released the name
}

func checkSandboxAgain(p *probe) {
	pod := p.runPod()
	for range 3 {
		p.stopPod(pod.id)
	}
	p.removePod(pod.id)
	for range 2 {
		_, err := p.rt.RemovePodSandbox(p.call(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.id})
		p.gone(err, "podrunner: RemovePodSandbox fails, so the pod stays for ever")
	}
	_, err := p.rt.StopPodSandbox(p.call(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod.id})
	p.gone(err, "podworker: a pod that was removed already never terminates")
}

// unknownID is a well-formed id that no object has.
const unknownID = "00000000000000000000000000000000000000000000000000000000000000ab"

func checkSandboxUnknown(p *probe) {
	_, err := p.rt.PodSandboxStatus(p.call(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: unknownID})
	p.code(codes.NotFound, err, "pleg: cannot distinguish a removed pod from a failing runtime")
	_, err = p.rt.StopPodSandbox(p.call(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: unknownID})
	p.gone(err, "podworker: a pod that was removed already never terminates")
	_, err = p.rt.RemovePodSandbox(p.call(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: unknownID})
	p.gone(err, "containergc: fails for a pod that was removed already")
	_, err = p.tryCreate(&pod{id: unknownID, config: p.podConfig()}, p.containerConfig("app", p.Sleeper, 0))
	p.must(err != nil, "podrunner: creates a container without a pod", "no error")
}

func checkSandboxStop(p *probe) {
	pod := p.runPod()
	running, done := p.launch(pod, "app", p.Stubborn), p.launch(pod, "done", p.Failer)
	waiting := p.create(pod, "waiting", p.Sleeper)
	before := p.ended(done)
	p.stopPod(pod.id)
	st := p.ended(running)
	p.must(st.GetExitCode() == 137, "status: a killed container does not have the exit code of SIGKILL", "%v", st)
	after := p.status(done)
	p.must(after.String() == before.String(), "pleg: misses a change of an exited container, which it does not inspect again", "%v, was %v", after, before)
	p.must(p.tryStart(waiting) != nil, "podrunner: starts a container in a stopped pod", "no error")
	still := p.status(waiting).GetState()
	p.must(still != runtimeapi.ContainerState_CONTAINER_RUNNING, "podworker: a container runs in a stopped pod", "%v", still)
}

func checkSandboxRemove(p *probe) {
	pod := p.runPod()
	ids := []string{p.launch(pod, "app", p.Stubborn), p.launch(pod, "done", p.Completer), p.create(pod, "waiting", p.Sleeper)}
	p.ended(ids[1])
	p.removePod(pod.id) // without stopping it first
	for _, id := range ids {
		_, err := p.tryStatus(id)
		p.code(codes.NotFound, err, "containergc: containers still exist after their pod was removed")
	}
	left := p.list(p.ourContainers())
	p.must(len(left) == 0, "pleg: lists containers whose pod was removed", "%v", left)
}

func checkAddresses(p *probe) {
	seen := map[string]string{}
	for range 3 {
		pod := p.runPod()
		ip := p.podStatus(pod.id).GetNetwork().GetIp()
		p.must(seen[ip] == "", "status, prober: two pods have the same address", "%s and %s have %s", seen[ip], pod.id, ip)
		seen[ip] = pod.id
	}
}

func checkHostNetwork(p *probe) {
	config := p.podConfig()
	options := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
	config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options}
	config.Hostname = ""
	pod := p.runPodOf(config)
	got := p.podStatus(pod.id).GetLinux().GetNamespaces().GetOptions().GetNetwork()
	p.must(got == runtimeapi.NamespaceMode_NODE, "status: treats a pod on the host's network as one with its own address", "%v", got)
}
