package conformance

import (
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func execChecks() []check {
	return []check{
		{name: "exec/output-and-exit-code", run: checkExec},
		{name: "exec/timeout", run: checkExecTimeout},
		{name: "exec/impossible", run: checkExecImpossible},
	}
}

func (p *probe) exec(id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	return p.rt.ExecSync(p.call(), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: cmd, Timeout: int64(timeout / time.Second),
	})
}

func checkExec(p *probe) {
	id := p.launch(p.runPod(), "app", p.Sleeper)
	r, err := p.exec(id, p.Exec.Print, p.CallTimeout)
	p.ok(err, "prober: cannot run a command")
	p.must(r.GetExitCode() == 0 && string(r.GetStdout()) == p.Exec.Output, "prober: the output of a command is missing", "%v", r)
	r, err = p.exec(id, p.Exec.Fail, 0)
	p.ok(err, "prober: cannot distinguish a failing command from a command that cannot be run")
	p.must(r.GetExitCode() == p.Exec.ExitCode, "prober: treats a failure as a success", "%v", r)
}

func checkExecTimeout(p *probe) {
	id := p.launch(p.runPod(), "app", p.Sleeper)
	start := p.clock.Now()
	r, err := p.exec(id, p.Exec.Sleep, p.Grace)
	took := p.clock.Since(start)
	if err == nil { // CRI-O answers with exit code -1
		p.must(r.GetExitCode() != 0, "prober: treats a timeout as a success", "%v", r)
	} else {
		p.code(codes.DeadlineExceeded, err, "prober: cannot distinguish a timeout from a failing runtime")
	}
	p.must(took >= p.Grace && took < p.Grace+p.ChangeTimeout, "prober: the timeout is not observed", "%v of %v", took, p.Grace)
	st := p.status(id)
	p.must(st.GetState() == running, "prober: a probe that exceeds its timeout kills the container", "%v", st)
}

func checkExecImpossible(p *probe) {
	id := p.launch(p.runPod(), "app", p.Sleeper)
	_, err := p.exec(id, p.Exec.Missing, p.Grace)
	p.must(err != nil, "prober: a command that does not exist succeeds", "no error")
	p.stop(id, p.CallTimeout)
	_, err = p.exec(id, p.Exec.Print, p.Grace)
	p.must(err != nil, "prober: an exited container is healthy", "no error")
	_, err = p.exec(unknownID, p.Exec.Print, p.Grace)
	p.code(codes.NotFound, err, "prober: the error for a removed container is not NotFound")
}
