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
	p.ok(err, "agent: does not start, because it cannot tell what the runtime is")
	p.must(r.GetRuntimeName() != "" && r.GetRuntimeVersion() != "", "agent: cannot name its runtime", "%v", r)
	p.must(r.GetRuntimeApiVersion() == "v1", "agent: speaks v1 of the CRI only", "%v", r)
}

func checkReady(p *probe) {
	r, err := p.rt.Status(p.call(), &runtimeapi.StatusRequest{})
	p.ok(err, "agent: cannot tell whether the runtime is ready")
	for _, want := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		seen := false
		for _, c := range r.GetStatus().GetConditions() {
			seen = seen || c.GetType() == want && c.GetStatus()
		}
		p.must(seen, "agent: the node never becomes ready, for want of "+want, "%v", r.GetStatus().GetConditions())
	}
}

// checkCgroupDriver accepts a runtime that does not tell: agents then go by
// their own configuration.
func checkCgroupDriver(p *probe) {
	_, err := p.rt.RuntimeConfig(p.call(), &runtimeapi.RuntimeConfigRequest{})
	p.must(err == nil || grpcstatus.Code(err) == codes.Unimplemented,
		"podrunner: cannot tell how pods' cgroups are to be named", "%v", err)
}

func sandboxChecks() []check {
	return []check{
		{name: "sandbox/life", run: checkSandboxLife},
		{name: "sandbox/says-what-it-was-given", run: checkSandboxEcho},
		{name: "sandbox/name-is-reserved-until-removal", run: checkSandboxName},
		{name: "sandbox/stop-and-remove-again", run: checkSandboxAgain},
		{name: "sandbox/unknown-ids", run: checkSandboxUnknown},
		{name: "sandbox/stop-ends-its-containers", run: checkSandboxStop},
		{name: "sandbox/remove-takes-all-along", run: checkSandboxRemove},
		{name: "sandbox/addresses-differ", run: checkAddresses},
		{name: "sandbox/host-network", run: checkHostNetwork},
	}
}

func checkSandboxLife(p *probe) {
	pod := p.runPod()
	st := p.podStatus(pod.id)
	p.must(st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		"podrunner: kills and makes again for ever a pod whose sandbox is never ready", "%v", st)
	_, err := netip.ParseAddr(st.GetNetwork().GetIp())
	p.ok(err, "status: the pod has no IP")

	p.stopPod(pod.id)
	st = p.podStatus(pod.id)
	p.must(st.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		"podworker: a pod that was stopped counts as running and never terminates", "%v", st)

	p.removePod(pod.id)
	_, err = p.rt.PodSandboxStatus(p.call(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.id})
	p.code(codes.NotFound, err, "pleg: inspects a pod that is gone for ever, because it is not NotFound")
	left := p.listPods(p.ourPods())
	p.must(len(left) == 0, "podworker: a pod that was removed is never gone", "%v", left)
}

func checkSandboxEcho(p *probe) {
	before := p.clock.Now()
	pod := p.runPod()
	st := p.podStatus(pod.id)
	p.must(st.GetId() == pod.id, "pleg: takes one pod for another", "%s is %s", pod.id, st.GetId())
	p.must(sameMetadata(st.GetMetadata(), pod.config.GetMetadata()),
		"podcache: a pod is filed under a wrong name", "%v for %v", st.GetMetadata(), pod.config.GetMetadata())
	p.must(contains(st.GetLabels(), pod.config.GetLabels()),
		"pleg: a pod whose labels are not those given belongs to nobody", "%v for %v", st.GetLabels(), pod.config.GetLabels())
	p.must(contains(st.GetAnnotations(), pod.config.GetAnnotations()),
		"podrunner: what is noted in annotations is lost", "%v for %v", st.GetAnnotations(), pod.config.GetAnnotations())
	p.closeTo(before, st.GetCreatedAt())
}

// contains reports whether the runtime shows everything that it was given. It may
// add its own: CRI-O labels sandboxes.
func contains(shown, given map[string]string) bool {
	for key, value := range given {
		if got, ok := shown[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// closeTo checks a timestamp that must be of about the same time as ours.
func (p *probe) closeTo(ours time.Time, stamp int64) {
	p.Helper()
	const day = 24 * time.Hour // clocks of two machines differ, units of time do more
	p.must(time.Unix(0, stamp).Sub(ours).Abs() < day,
		"status, podrunner: restarts at the wrong time, because times are not nanoseconds since 1970", "%d", stamp)
}

func sameMetadata(a, b *runtimeapi.PodSandboxMetadata) bool {
	return a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace() &&
		a.GetUid() == b.GetUid() && a.GetAttempt() == b.GetAttempt()
}

// checkSandboxName accepts the id of the first pod as well as an error for the second
// with its name, and checkContainerName the same: CRI-O takes that for a call made again.
func checkSandboxName(p *probe) {
	pod := p.runPod()
	again := func(breaks string) {
		p.Helper()
		r, err := p.rt.RunPodSandbox(p.call(), &runtimeapi.RunPodSandboxRequest{Config: pod.config})
		p.must(err != nil || r.GetPodSandboxId() == pod.id, breaks, "%s, then %s", pod.id, r.GetPodSandboxId())
	}
	again("podrunner: a pod that it made and lost sight of runs twice")
	p.stopPod(pod.id)
	again("podrunner: two pods have one name and attempt")
	all := p.listPods(p.ourPods())
	p.must(len(all) == 1, "podrunner: a pod that could not be made is there", "%v", all)

	pod.config.Metadata.Attempt = 1
	second := p.runPodOf(pod.config)
	p.must(second.id != pod.id, "podcache: two attempts at a pod are one", "both are %s", pod.id)
	first, next := p.podStatus(pod.id), p.podStatus(second.id)
	p.must(cmp.Less(first.GetCreatedAt(), next.GetCreatedAt()),
		"podcache: takes an old sandbox for the current one", "%d, then %d", first.GetCreatedAt(), next.GetCreatedAt())

	p.removePod(pod.id)
	pod.config.Metadata.Attempt = 0
	p.runPodOf(pod.config) // the name is free
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
	p.gone(err, "podworker: a pod that is gone already never terminates")
}

// unknownID looks like an id.
const unknownID = "00000000000000000000000000000000000000000000000000000000000000ab"

func checkSandboxUnknown(p *probe) {
	_, err := p.rt.PodSandboxStatus(p.call(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: unknownID})
	p.code(codes.NotFound, err, "pleg: cannot tell a pod that is gone from a runtime that fails")
	_, err = p.rt.StopPodSandbox(p.call(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: unknownID})
	p.gone(err, "podworker: a pod that is gone already never terminates")
	_, err = p.rt.RemovePodSandbox(p.call(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: unknownID})
	p.gone(err, "containergc: fails at a pod that is gone already")
	_, err = p.tryCreate(&pod{id: unknownID, config: p.podConfig()}, p.containerConfig("app", p.Sleeper, 0))
	p.must(err != nil, "podrunner: a container is made without a pod", "no error")
}

func checkSandboxStop(p *probe) {
	pod := p.runPod()
	running, done := p.launch(pod, "app", p.Stubborn), p.launch(pod, "done", p.Failer)
	waiting := p.create(pod, "waiting", p.Sleeper)
	before := p.ended(done)
	p.stopPod(pod.id)
	st := p.ended(running)
	p.must(st.GetExitCode() == 137, "status: a killed container has another code than that of SIGKILL", "%v", st)
	after := p.status(done)
	p.must(after.String() == before.String(), "pleg: does not ask again for what has ended, which has changed", "%v, was %v", after, before)
	p.must(p.tryStart(waiting) != nil, "podrunner: a container starts in a pod that was stopped", "no error")
	still := p.status(waiting).GetState()
	p.must(still != runtimeapi.ContainerState_CONTAINER_RUNNING, "podworker: a pod that was stopped runs", "%v", still)
}

func checkSandboxRemove(p *probe) {
	pod := p.runPod()
	ids := []string{p.launch(pod, "app", p.Stubborn), p.launch(pod, "done", p.Completer), p.create(pod, "waiting", p.Sleeper)}
	p.ended(ids[1])
	p.removePod(pod.id) // and nobody has stopped it
	for _, id := range ids {
		_, err := p.tryStatus(id)
		p.code(codes.NotFound, err, "containergc: containers stay when their pod is removed")
	}
	left := p.list(p.ourContainers())
	p.must(len(left) == 0, "pleg: containers without a pod are listed", "%v", left)
}

func checkAddresses(p *probe) {
	seen := map[string]string{}
	for range 3 {
		pod := p.runPod()
		ip := p.podStatus(pod.id).GetNetwork().GetIp()
		p.must(seen[ip] == "", "status, prober: two pods have one address", "%s and %s have %s", seen[ip], pod.id, ip)
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
	p.must(got == runtimeapi.NamespaceMode_NODE, "status: takes a pod on the host's network for one with an address", "%v", got)
}
