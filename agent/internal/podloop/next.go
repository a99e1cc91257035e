package podloop

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// next returns the record of a pod after an event, and the actions to carry out, in order. It is
// a pure function. The golden file testdata/next/table shows all states and events.
func next(r record, e event) (record, []do) {
	s := step{record: r, serial: e.serial}
	switch e.kind {
	case evDefined:
		s.defined(e)
	case evDeleted:
		s.deleted(e)
	case evReconciled:
		s.reconciled(e)
	case evUndefined:
		s.undefined(e)
	case evAnswered:
		s.answered(e)
	case evRetry:
		s.retry()
	case evDependencyChanged:
		s.dependencyChanged()
	case evKilled:
		s.killed(e)
	case evPhaseChanged:
		s.phaseChanged(e)
	case evRemoved:
		s.removed()
	case evFound:
		s.found(e)
	case evResumed:
		s.resumed()
	}
	return s.record, s.todo
}

// step is a record during a transition.
type step struct {
	record
	serial uint64
	todo   []do
}

func (s *step) do(actions ...action) {
	for _, a := range actions {
		s.todo = append(s.todo, do{action: a, pod: s.pod})
	}
}

func (s *step) setState(state State, why string) { s.state, s.why = state, why }

// requestAdmission requests the admission of the pod.
func (s *step) requestAdmission(why string) {
	s.setState(Offered, why)
	s.version = s.serial
	s.todo = append(s.todo, do{action: doAdmit, pod: s.pod, version: s.version})
}

// requestEditAdmission requests the admission of an edit of an admitted pod. The previous
// version of the pod keeps running meanwhile.
func (s *step) requestEditAdmission() {
	s.version = s.serial
	s.todo = append(s.todo, do{action: doAdmit, pod: s.newer, version: s.version, edit: true})
}

func (s *step) stop(how podworker.KillOptions) {
	s.hasWorker = true
	if how.Grace != nil {
		s.grace = how.Grace
	}
	s.todo = append(s.todo, do{action: doStop, pod: s.pod, how: how})
}

// startEnding changes the state to Ending and stops the pod.
func (s *step) startEnding(why string, how podworker.KillOptions) {
	s.setState(Ending, why)
	s.version = s.serial // ignore the answer of a pending admission
	s.refusal = lifecycle.PodAdmitResult{}
	s.stop(how)
}

// ended records that none of the pod's containers runs or will run.
func (s *step) ended(why string) {
	s.setState(Ended, why)
	s.version, s.endedBy, s.refusal = s.serial, s.serial, lifecycle.PodAdmitResult{}
	if s.newer != nil {
		s.pod, s.newer = s.newer, nil
	}
	s.do(doRelease, doEnded)
}

// removeIfDue starts the removal of the pod if its data must be removed and its worker has
// finished.
func (s *step) removeIfDue() {
	if s.leaving() && !s.hasWorker && !s.removing {
		s.removing = true
		s.do(doRemove)
	}
}

// defined handles a new or changed definition of a pod.
func (s *step) defined(e event) {
	undefinedBefore := s.source == ""
	s.source = e.source
	switch s.state {
	case Gone:
		s.pod = e.pod
		if e.ended { // skip admission: a refusal would replace the final status
			s.setState(Admitted, "it ended before this agent started")
			s.hasWorker = true
			s.do(doStart)
			return
		}
		s.requestAdmission("its source defines it")
	case Offered:
		s.pod = e.pod
		s.requestAdmission("its definition has changed")
	case Refused:
		if !s.static() { // its phase Failed is final
			s.pod = e.pod
			s.do(doPublish)
			return
		}
		if s.hasWorker { // containers of an earlier agent are being stopped
			s.setState(Ending, "its definition has changed")
			s.newer, s.restartAfterRemoval = e.pod, true
			return
		}
		s.pod = e.pod
		s.requestAdmission("its definition has changed")
	case Admitted:
		s.edited(e)
	case Ending:
		s.newer, s.restartAfterRemoval = e.pod, s.restartAfterRemoval || undefinedBefore
	case Ended:
		s.pod, s.restartAfterRemoval = e.pod, s.restartAfterRemoval || undefinedBefore
	case Removed:
		s.pod = e.pod
	}
}

// edited handles a new definition of an admitted pod.
func (s *step) edited(e event) {
	if sameSpec(s.pod, e.pod) || podspec.IsTerminal(e.pod.Status.Phase) {
		s.pod, s.newer, s.refusal = e.pod, nil, lifecycle.PodAdmitResult{}
		s.version = s.serial
		s.do(doUpdate)
		return
	}
	if before := cmp.Or(s.newer, s.pod); !sameSpec(before, e.pod) {
		s.todo = append(s.todo, do{action: doReportEdit, pod: e.pod, before: before})
	}
	s.newer, s.refusal = e.pod, lifecycle.PodAdmitResult{}
	s.requestEditAdmission()
}

// deleted handles a definition with a deletion timestamp. A pod with a deletion timestamp never
// goes through admission.
func (s *step) deleted(e event) {
	s.pod, s.newer, s.source, s.restartAfterRemoval, s.removalReason = e.pod, nil, e.source, false, deleted
	const why = "it is being deleted"
	switch s.state {
	case Gone:
		s.setState(Ending, why)
		s.hasWorker = true
		s.do(doResume)
	case Offered, Refused:
		s.endUnadmitted(e, why)
	case Admitted, Ending:
		s.startEnding(why, podworker.KillOptions{})
	case Ended:
		s.removeIfDue()
	case Removed:
		s.do(doTerminate)
	}
}

// undefined handles a pod that no source defines any more.
func (s *step) undefined(e event) {
	s.source, s.restartAfterRemoval, s.newer = "", false, nil
	const why = "no source defines it any more"
	switch s.state {
	case Offered, Refused:
		s.endUnadmitted(e, why)
	case Admitted:
		s.startEnding(why, podworker.KillOptions{})
	case Ended:
		s.removeIfDue()
	case Removed:
		s.setState(Gone, why)
		s.do(doForget)
	case Ending, Gone:
	}
}

// endUnadmitted ends a pod that was not admitted. Its containers may still run if an earlier agent
// started them.
func (s *step) endUnadmitted(e event, why string) {
	if s.hasWorker || e.runs {
		s.do(doRelease)
		s.startEnding(why, podworker.KillOptions{})
		return
	}
	s.ended(why)
	s.removeIfDue()
}

// reconciled handles a definition in which only the status has changed. If a readiness gate has
// changed, it requests a sync of the pod, which computes the pod's condition Ready again.
func (s *step) reconciled(e event) {
	switch {
	case s.state == Gone:
		return
	case s.newer != nil:
		s.newer = e.pod
		s.pod = withStatus(s.pod, &e.pod.Status)
	default:
		s.pod = e.pod
	}
	if s.state == Admitted && status.NeedToReconcilePodReadiness(s.pod) {
		s.do(doSync)
	}
	s.do(doPublish)
}

// withStatus returns a copy of pod with the status s of another version of the pod.
func withStatus(pod *corev1.Pod, s *corev1.PodStatus) *corev1.Pod {
	next := *pod
	next.Status = *s
	return &next
}

// answered handles the result of an admission.
func (s *step) answered(e event) {
	if e.version != s.version {
		return
	}
	refusal := e.result
	isNew := refusal != s.refusal
	switch {
	case s.state == Offered && e.result.Admit:
		s.setState(Admitted, "it was admitted")
		if s.refusal != (lifecycle.PodAdmitResult{}) {
			s.do(doUnrefuse)
		}
		s.refusal, s.adopted, s.hasWorker = lifecycle.PodAdmitResult{}, e.runs, true
		s.do(doStart)
	case s.state == Offered:
		s.setState(Refused, refusal.Reason)
		s.refusal = refusal
		if isNew {
			s.todo = append(s.todo, do{action: doRefuse, pod: s.pod, result: refusal})
		}
		if e.runs {
			s.stop(podworker.KillOptions{StatusFn: refusedStatus(refusal)})
		}
	case s.state == Admitted && s.newer != nil && e.result.Admit:
		s.pod, s.newer, s.refusal = s.newer, nil, lifecycle.PodAdmitResult{}
		s.do(doUpdate)
	case s.state == Admitted && s.newer != nil:
		s.refusal = refusal
		if isNew {
			s.todo = append(s.todo, do{action: doRefuseEdit, pod: s.pod, result: refusal})
		}
	}
}

// retry requests the admission of a refused static pod or a refused edit again. The refusal of
// an API pod is final.
func (s *step) retry() {
	switch {
	case s.state == Refused && s.static() && !s.hasWorker:
		s.requestAdmission("the node has changed")
	case s.state == Admitted && s.newer != nil && s.refusal != (lifecycle.PodAdmitResult{}):
		s.requestEditAdmission()
	}
}

// dependencyChanged handles the change of a dependency of the pod, such as a Secret.
func (s *step) dependencyChanged() {
	s.retry()
	if s.state == Admitted {
		s.do(doSync)
	}
	if s.state != Gone {
		s.do(doPublish)
	}
}

// killed handles a kill that does not result from a change of the source: an eviction, a
// preemption, or a call of [Loop.Kill] or [Loop.StopPods].
func (s *step) killed(e event) {
	if s.state == Gone {
		return
	}
	if s.removalReason == keepData && s.state != Refused {
		s.removalReason = e.removalReason
	}
	s.stopped = s.stopped || e.stopped
	switch s.state {
	case Offered:
		s.do(doRelease)
		s.startEnding("it was killed", e.how)
	case Admitted:
		s.startEnding("it was killed", e.how)
	case Ending:
		s.stop(e.how)
	case Refused:
		if s.hasWorker {
			s.stop(e.how)
		}
	case Ended:
		s.removeIfDue()
	case Removed, Gone:
	}
}

// phaseChanged handles a new phase of the pod's worker.
func (s *step) phaseChanged(e event) {
	switch e.phase {
	case podworker.Terminating:
		if s.state == Admitted {
			s.setState(Ending, "its containers have ended, or the pod must be stopped")
		}
	case podworker.Terminated:
		s.podEnded()
	case podworker.Finished:
		s.podEnded()
		s.hasWorker = false
		switch s.state {
		case Ended:
			s.removeIfDue()
		case Refused:
			s.do(doForgetWorker)
			s.retry()
		case Offered, Admitted, Ending, Removed, Gone:
		}
	case podworker.Syncing:
	}
}

// podEnded records that the pod has ended. The state may still be Admitted, because a worker
// may go from Syncing directly to Finished.
func (s *step) podEnded() {
	if s.state == Ending || s.state == Admitted {
		s.ended(s.why)
	}
}

// removed handles the complete removal of a pod.
func (s *step) removed() {
	if s.state != Ended || !s.removing {
		return
	}
	s.removing = false
	switch {
	case s.restartAfterRemoval:
		s.startAgain("its source defines it again")
	case s.source == "":
		s.setState(Gone, "it is completely removed")
		s.do(doForget)
	default:
		s.setState(Removed, "it is completely removed")
		if s.removalReason == deleted {
			s.do(doTerminate)
		}
	}
}

// startAgain requests the admission of a pod whose earlier run is completely removed.
func (s *step) startAgain(why string) {
	s.restartAfterRemoval, s.removalReason, s.stopped, s.adopted, s.grace = false, keepData, false, false, nil
	s.refusal = lifecycle.PodAdmitResult{}
	s.do(doForget)
	s.requestAdmission(why)
}

// found handles a pod that exists in the runtime or on the disk and has no record.
func (s *step) found(e event) {
	if s.state != Gone {
		return
	}
	const why = "no source defines it"
	s.pod = stub(e.status)
	if e.runs {
		s.setState(Ending, why)
		s.hasWorker, s.adopted = true, true
		s.todo = append(s.todo, do{action: doStopOrphan, pod: s.pod, status: e.status})
		return
	}
	s.setState(Ended, why)
	s.removeIfDue()
}

// stub returns a pod that has only UID, name and namespace, for a pod without a definition.
func stub(s *podcache.Status) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: s.UID, Name: s.Name, Namespace: s.Namespace}}
}

// resumed restarts a static pod that StopPods has ended, if a source still defines the pod and it
// is neither deleted nor evicted. An API pod is not restarted: its phase Failed is final.
func (s *step) resumed() {
	if !s.stopped {
		return
	}
	s.stopped = false
	if s.source == "" || s.removalReason == deleted || s.removalReason == evicted || !s.static() {
		return
	}
	switch s.state {
	case Ending:
		s.restartAfterRemoval = true
	case Ended:
		s.restartAfterRemoval = true
		s.removeIfDue()
	case Removed:
		s.startAgain("its shutdown was cancelled")
	case Offered, Refused, Admitted, Gone:
	}
}
