package conformance

import (
	"os"
	"path/filepath"
	"regexp"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func containerChecks() []check {
	return []check{
		{name: "container/lifecycle", run: checkContainerLife},
		{name: "container/status-shows-config", run: checkContainerEcho},
		{name: "container/exit-codes-and-reasons", run: checkExitCodes},
		{name: "container/starts-once", run: checkStartsOnce},
		{name: "container/name-is-reserved-until-removal", run: checkContainerName},
		{name: "container/attempts", run: checkAttempts},
		{name: "container/unknown-ids", run: checkContainerUnknown},
		{name: "container/start-error", run: checkBroken},
		{name: "container/missing-image", run: checkMissingImage},
		{name: "container/resources", run: checkResources},
		{name: "log/is-written", run: checkLog},
		{name: "log/is-reopened", run: checkReopen},
	}
}

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
)

func checkContainerLife(p *probe) {
	pod := p.runPod()
	id := p.create(pod, "app", p.Sleeper)
	st := p.status(id)
	p.must(st.GetState() == created && st.GetStartedAt() <= 0 && st.GetFinishedAt() <= 0,
		"podrunner: does not start a container, because it appears to have run", "%v", st)
	p.must(st.GetCreatedAt() > 0, "podcache: cannot distinguish new containers from old ones", "%v", st)

	p.start(id)
	st = p.status(id)
	p.must(st.GetState() == running, "podrunner: starts a running container again", "%v", st)
	p.must(st.GetStartedAt() >= st.GetCreatedAt() && st.GetFinishedAt() <= 0,
		"prober, podrunner: use a wrong start time", "%v", st)
	p.closeTo(p.clock.Now(), st.GetStartedAt())

	p.until("podworker: the output of a container is missing in its log", p.logHas(pod, "app_0.log", p.Sleeper.Ready))
	p.stop(id, p.ChangeTimeout)
	st = p.status(id)
	p.must(exited(st), "podworker: a container still runs after StopContainer has returned", "%v", st)
	p.must(st.GetFinishedAt() >= st.GetStartedAt() && st.GetStartedAt() >= st.GetCreatedAt(),
		"podrunner: back-off starts at a wrong time", "%v", st)

	p.ok(p.tryRemove(id), "containergc: cannot remove a container")
	_, err := p.tryStatus(id)
	p.code(codes.NotFound, err, "pleg: inspects a removed container for ever")
	p.must(len(p.list(p.ourContainers())) == 0, "pleg: still lists a removed container", "it is listed")
}

func checkContainerEcho(p *probe) {
	pod := p.runPod()
	config := p.containerConfig("app", p.Sleeper, 7)
	id, err := p.tryCreate(pod, config)
	p.ok(err, "podrunner: cannot create a container")
	st := p.status(id)
	p.must(st.GetId() == id, "pleg: mistakes one container for another", "%s is %s", id, st.GetId())
	p.must(st.GetMetadata().GetName() == "app" && st.GetMetadata().GetAttempt() == 7,
		"podcache: stores a container under a wrong name", "%v", st.GetMetadata())
	p.must(contains(st.GetLabels(), config.GetLabels()),
		"pleg: ignores a container whose labels differ from those of its config", "%v for %v", st.GetLabels(), config.GetLabels())
	p.must(contains(st.GetAnnotations(), config.GetAnnotations()),
		"podrunner: loses restart counts and hashes, which are annotations", "%v for %v", st.GetAnnotations(), config.GetAnnotations())
	p.must(st.GetLogPath() == filepath.Join(pod.config.GetLogDirectory(), config.GetLogPath()),
		"containergc: rotates a file that is not the log", "%s", st.GetLogPath())
	p.must(st.GetImageRef() != "" && st.GetImage().GetImage() != "", "status, imagegc: cannot find out which image is in use", "%v", st)
}

func checkExitCodes(p *probe) {
	pod := p.runPod()
	for _, tc := range []struct {
		name, reason string
		w            Workload
	}{
		{"completer", "Completed", p.Completer},
		{"failer", "Error", p.Failer},
	} {
		id := p.create(pod, tc.name, tc.w)
		p.start(id)
		st := p.ended(id)
		p.must(st.GetExitCode() == tc.w.ExitCode,
			"podrunner: decides about a restart with a wrong exit code", "%s: %v", tc.name, st)
		p.must(st.GetReason() == tc.reason, "status: shows a wrong reason", "%s: %q, not %q", tc.name, st.GetReason(), tc.reason)
		// Do not compare with the start: containerd may record the start after the exit of
		// a program that exits at once.
		p.must(st.GetStartedAt() >= st.GetCreatedAt() && st.GetFinishedAt() >= st.GetCreatedAt() && st.GetCreatedAt() > 0,
			"podrunner: back-off starts at a wrong time", "%s: %v", tc.name, st)
	}
}

func checkStartsOnce(p *probe) {
	pod := p.runPod()
	id := p.create(pod, "app", p.Failer)
	p.start(id)
	before := p.ended(id)
	p.must(p.tryStart(id) != nil, "podrunner: a container runs twice, so its first exit code is lost", "no error")
	after := p.status(id)
	p.must(after.String() == before.String(), "status: the exit status of a container has changed", "%v, was %v", after, before)
}

func checkContainerName(p *probe) {
	pod := p.runPod()
	config := p.containerConfig("app", p.Completer, 0)
	id := p.create(pod, "app", p.Completer)
	again := func(breaks string) {
		p.Helper()
		second, err := p.tryCreate(pod, config)
		p.must(err != nil || second == id, breaks, "%s, then %s", id, second)
	}
	again("podrunner: runs a container twice after it missed the response to its creation")
	p.start(id)
	p.ended(id)
	again("podrunner: two containers have the same name and attempt")
	p.must(len(p.list(p.ourContainers())) == 1, "podrunner: a container exists although its creation failed", "two exist")
	p.ok(p.tryRemove(id), "containergc: cannot remove a container")
	p.create(pod, "app", p.Completer) // fails if the removal has not released the name
}

func checkAttempts(p *probe) {
	pod := p.runPod()
	last := int64(0)
	for attempt := range uint32(4) {
		id, err := p.tryCreate(pod, p.containerConfig("app", p.Completer, attempt))
		p.ok(err, "podrunner: cannot restart a container")
		p.start(id)
		st := p.ended(id)
		p.must(st.GetMetadata().GetAttempt() == attempt, "podrunner: miscounts restarts", "%v", st.GetMetadata())
		p.must(st.GetCreatedAt() > last, "podcache: mistakes an old attempt for the current one", "%v", st)
		last = st.GetCreatedAt()
	}
	all := p.list(p.ourContainers())
	p.must(len(all) == 4, "containergc: exited attempts disappear before they are collected", "%v", all)
}

func checkContainerUnknown(p *probe) {
	_, err := p.tryStatus(unknownID)
	p.code(codes.NotFound, err, "pleg: cannot distinguish a removed container from a failing runtime")
	p.gone(p.tryStop(unknownID, p.Grace), "podworker: a pod never terminates if one of its containers was removed")
	p.gone(p.tryRemove(unknownID), "containergc: fails for a container that was removed already")
	p.must(p.tryStart(unknownID) != nil, "podrunner: treats a removed container as started", "no error")
	_, err = p.rt.ReopenContainerLog(p.call(), &runtimeapi.ReopenContainerLogRequest{ContainerId: unknownID})
	p.must(err != nil, "containergc: treats the log of a removed container as rotated", "no error")
}

// checkBroken accepts that CreateContainer fails, as on CRI-O, where the OCI runtime checks
// the command in this step.
func checkBroken(p *probe) {
	pod := p.runPod()
	id, err := p.tryCreate(pod, p.containerConfig("app", p.Broken, 0))
	if err != nil {
		p.must(len(p.list(p.ourContainers())) == 0, "podrunner: a container exists although its creation failed", "it is listed")
		p.create(pod, "app", p.Sleeper) // fails if the failed creation has reserved the name
		return
	}
	p.must(p.tryStart(id) != nil, "podrunner: treats a container that failed to start as started", "no error")
	st := p.status(id)
	p.must(exited(st), "podrunner: does not retry a container that failed to start", "%v", st)
	p.must(st.GetExitCode() != 0, "status: shows a container that failed to start as succeeded", "%v", st)
	p.must(st.GetFinishedAt() > 0, "podrunner: back-off starts in 1970", "%v", st)
	p.must(st.GetReason() != "" && st.GetMessage() != "", "status: does not show why a container failed to start", "%v", st)
	p.stop(id, p.Grace)
	p.ok(p.tryRemove(id), "containergc: cannot remove a container that failed to start")
}

func checkMissingImage(p *probe) {
	pod := p.runPod()
	config := p.containerConfig("app", Workload{Image: p.MissingImage}, 0)
	_, err := p.tryCreate(pod, config)
	p.must(err != nil, "podrunner: creates a container without an image", "no error")
	p.must(len(p.list(p.ourContainers())) == 0, "podrunner: a container exists although its creation failed", "it is listed")
	p.create(pod, "app", p.Sleeper) // fails if the failed creation has reserved the name
}

func checkResources(p *probe) {
	pod := p.runPod()
	config := p.containerConfig("app", p.Sleeper, 0)
	config.Linux.Resources.MemoryLimitInBytes = 64 << 20
	config.Linux.Resources.CpuShares = 256
	id, err := p.tryCreate(pod, config)
	p.ok(err, "podrunner: cannot create a container with limits")
	p.start(id)
	update := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, CpuShares: 512}
	_, err = p.rt.UpdateContainerResources(p.call(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: update})
	p.optional(err, "podrunner: cannot resize a running container")
	got := p.status(id).GetResources().GetLinux()
	p.must(got.GetMemoryLimitInBytes() == 128<<20 && got.GetCpuShares() == 512,
		"podrunner: a resize never completes, because the status does not show it", "%v", got)
	_, err = p.rt.UpdateContainerResources(p.call(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: unknownID, Linux: update})
	p.must(err != nil, "podrunner: treats a removed container as resized", "no error")
}

func (p *probe) logHas(in *pod, file, text string) func() (bool, string) {
	return p.logMatches(in, file, regexp.MustCompile(regexp.QuoteMeta(text)))
}

func (p *probe) logMatches(in *pod, file string, pattern *regexp.Regexp) func() (bool, string) {
	return func() (bool, string) {
		text, err := os.ReadFile(filepath.Join(in.config.GetLogDirectory(), file))
		if err != nil {
			return false, err.Error()
		}
		return pattern.Match(text), string(text)
	}
}

// checkLog checks that a log line has the CRI format: time, stream, F, text.
func checkLog(p *probe) {
	pod := p.runPod()
	id := p.create(pod, "app", p.Completer)
	p.start(id)
	line := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) stdout F ` + regexp.QuoteMeta(p.Completer.Ready) + `$`)
	p.until("agent: cannot read a log that is not in the CRI format", p.logMatches(pod, "app_0.log", line))
	p.ended(id) // containerd 1.7 may fail to stop a pod while its container exits
}

func checkReopen(p *probe) {
	pod := p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	reopen := func(id string) error {
		_, err := p.rt.ReopenContainerLog(p.call(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
		return err
	}
	log := filepath.Join(pod.config.GetLogDirectory(), "app_0.log")
	p.ok(os.Rename(log, log+".1"), "this test: cannot rename a log")
	p.optional(reopen(id), "containergc: cannot rotate logs")
	_, err := os.Stat(log)
	p.ok(err, "containergc: no new log file is written after a rotation")
	p.stop(id, p.ChangeTimeout)
	p.must(reopen(id) != nil, "containergc: rotates the log of an exited container again and again", "no error")
}
