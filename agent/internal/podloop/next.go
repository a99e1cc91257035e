package podloop

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// next returns the record of a pod after an event, and what is to be done, in this order. It is
// pure. testdata/next shows all states and events.
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
	case evSynced:
		s.synced()
	case evKilled:
		s.killed(e)
	case evMoved:
		s.moved(e)
	case evRemoved:
		s.removed()
	case evFound:
		s.found(e)
	case evResumed:
		s.resumed()
	}
	return s.record, s.todo
}

// step is a record while it changes.
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

func (s *step) become(state State, why string) { s.state, s.why = state, why }

// ask asks about the pod.
func (s *step) ask(why string) {
	s.become(Offered, why)
	s.version = s.serial
	s.todo = append(s.todo, do{action: doAsk, pod: s.pod, version: s.version})
}

// askEdit asks about an edit of an admitted pod, which goes on meanwhile.
func (s *step) askEdit() {
	s.version = s.serial
	s.todo = append(s.todo, do{action: doAsk, pod: s.newer, version: s.version, edit: true})
}

func (s *step) stop(how podworker.KillOptions) {
	s.working = true
	if how.Grace != nil {
		s.grace = how.Grace
	}
	s.todo = append(s.todo, do{action: doStop, pod: s.pod, how: how})
}

// end begins the end of a pod.
func (s *step) end(why string, how podworker.KillOptions) {
	s.become(Ending, why)
	s.version = s.serial // an answer that is still to come does not count
	s.refusal = lifecycle.PodAdmitResult{}
	s.stop(how)
}

// ended records that nothing of the pod runs, and nothing will.
func (s *step) ended(why string) {
	s.become(Ended, why)
	s.version, s.endedBy, s.refusal = s.serial, s.serial, lifecycle.PodAdmitResult{}
	if s.newer != nil {
		s.pod, s.newer = s.newer, nil
	}
	s.do(doRelease, doEnded)
}

// removeNow starts the removal of a pod that is leaving, unless its worker still has it.
func (s *step) removeNow() {
	if s.leaving() && !s.working && !s.removing {
		s.removing = true
		s.do(doRemove)
	}
}

// defined is about a pod that a source defines.
func (s *step) defined(e event) {
	undefinedBefore := s.source == ""
	s.source = e.source
	switch s.state {
	case Gone:
		s.pod = e.pod
		if e.ended { // a question could only change the status of its end
			s.become(Admitted, "it ended before this agent began")
			s.working = true
			s.do(doStart)
			return
		}
		s.ask("its source defines it")
	case Offered:
		s.pod = e.pod
		s.ask("its source has changed it")
	case Refused:
		if s.working { // what an earlier agent started of it is being stopped
			s.become(Ending, "its source has changed it")
			s.newer, s.again = e.pod, true
			return
		}
		s.pod = e.pod
		s.ask("its source has changed it")
	case Admitted:
		s.edited(e)
	case Ending:
		s.newer, s.again = e.pod, s.again || undefinedBefore
	case Ended:
		s.pod, s.again = e.pod, s.again || undefinedBefore
	case Removed:
		s.pod = e.pod
	}
}

// edited is about another definition of an admitted pod.
func (s *step) edited(e event) {
	if sameSpec(s.pod, e.pod) || podspec.IsTerminal(e.pod.Status.Phase) {
		s.pod, s.newer, s.refusal = e.pod, nil, lifecycle.PodAdmitResult{}
		s.version = s.serial
		s.do(doUpdate)
		return
	}
	s.newer, s.refusal = e.pod, lifecycle.PodAdmitResult{}
	s.askEdit()
}

// deleted is about a pod that its source is deleting. It is never asked about.
func (s *step) deleted(e event) {
	s.pod, s.newer, s.source, s.again, s.remove = e.pod, nil, e.source, false, deleted
	const why = "it is deleted"
	switch s.state {
	case Gone:
		s.become(Ending, why)
		s.working = true
		s.do(doResume)
	case Offered, Refused:
		s.dismiss(e, why)
	case Admitted, Ending:
		s.end(why, podworker.KillOptions{})
	case Ended:
		s.removeNow()
	case Removed:
		s.do(doTerminate)
	}
}

// undefined is about a pod that no source defines any more.
func (s *step) undefined(e event) {
	s.source, s.again, s.newer = "", false, nil
	const why = "no source defines it any more"
	switch s.state {
	case Offered, Refused:
		s.dismiss(e, why)
	case Admitted:
		s.end(why, podworker.KillOptions{})
	case Ended:
		s.removeNow()
	case Removed:
		s.become(Gone, why)
		s.do(doForget)
	case Ending, Gone:
	}
}

// dismiss ends a pod that was not admitted. Something of it may run all the same: an earlier
// agent may have started it.
func (s *step) dismiss(e event, why string) {
	if s.working || e.runs {
		s.do(doRelease)
		s.end(why, podworker.KillOptions{})
		return
	}
	s.ended(why)
	s.removeNow()
}

// reconciled is about a pod whose status at its source has changed.
func (s *step) reconciled(e event) {
	switch {
	case s.state == Gone:
		return
	case s.newer != nil:
		s.newer = e.pod
	default:
		s.pod = e.pod
	}
	s.do(doPublish)
}

// answered is about the answer of admission.
func (s *step) answered(e event) {
	if e.version != s.version {
		return
	}
	refusal := e.result
	news := refusal != s.refusal
	switch {
	case s.state == Offered && e.result.Admit:
		s.become(Admitted, "it was admitted")
		if s.refusal != (lifecycle.PodAdmitResult{}) {
			s.do(doUnrefuse)
		}
		s.refusal, s.adopted, s.working = lifecycle.PodAdmitResult{}, e.runs, true
		s.do(doStart)
	case s.state == Offered:
		s.become(Refused, refusal.Reason)
		s.refusal = refusal
		if news {
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
		if news {
			s.todo = append(s.todo, do{action: doRefuseEdit, pod: s.pod, result: refusal})
		}
	}
}

// retry asks again about a static pod or an edit that was refused. The refusal of an API pod
// is final.
func (s *step) retry() {
	switch {
	case s.state == Refused && s.static() && !s.working:
		s.ask("the node has changed")
	case s.state == Admitted && s.newer != nil && s.refusal != (lifecycle.PodAdmitResult{}):
		s.askEdit()
	}
}

// synced is about something outside that the pod depends on.
func (s *step) synced() {
	s.retry()
	if s.state == Admitted {
		s.do(doSync)
	}
	if s.state != Gone {
		s.do(doPublish)
	}
}

// killed ends a pod that its source defines.
func (s *step) killed(e event) {
	if s.state == Gone {
		return
	}
	if s.remove == keep && s.state != Refused {
		s.remove = e.remove
	}
	s.stopped = s.stopped || e.stopped
	switch s.state {
	case Offered:
		s.do(doRelease)
		s.end("it was killed", e.how)
	case Admitted:
		s.end("it was killed", e.how)
	case Ending:
		s.stop(e.how)
	case Refused:
		if s.working {
			s.stop(e.how)
		}
	case Ended:
		s.removeNow()
	case Removed, Gone:
	}
}

// moved is about the phase of the pod's worker.
func (s *step) moved(e event) {
	switch e.phase {
	case podworker.Terminating:
		if s.state == Admitted {
			s.become(Ending, "its containers have ended, or it may not run any longer")
		}
	case podworker.Terminated:
		s.stopEnded()
	case podworker.Finished:
		s.stopEnded()
		s.working = false
		switch s.state {
		case Ended:
			s.removeNow()
		case Refused:
			s.do(doForgetWorker)
			s.retry()
		case Offered, Admitted, Ending, Removed, Gone:
		}
	case podworker.Syncing:
	}
}

// stopEnded records that nothing of a pod runs any more that was being stopped. A worker may
// go from the beginning to Finished at once.
func (s *step) stopEnded() {
	if s.state == Ending || s.state == Admitted {
		s.ended(s.why)
	}
}

// removed is about a pod of which nothing is left.
func (s *step) removed() {
	if s.state != Ended || !s.removing {
		return
	}
	s.removing = false
	switch {
	case s.again:
		s.beginAgain("its source defines it again")
	case s.source == "":
		s.become(Gone, "nothing of it is left")
		s.do(doForget)
	default:
		s.become(Removed, "nothing of it is left")
		if s.remove == deleted {
			s.do(doTerminate)
		}
	}
}

// beginAgain asks about a pod of which nothing is left of its earlier life.
func (s *step) beginAgain(why string) {
	s.again, s.remove, s.stopped, s.adopted, s.grace = false, keep, false, false, nil
	s.refusal = lifecycle.PodAdmitResult{}
	s.do(doForget)
	s.ask(why)
}

// found is about a pod that has no record.
func (s *step) found(e event) {
	if s.state != Gone {
		return
	}
	const why = "no source defines it"
	s.pod = stub(e.status)
	if e.runs {
		s.become(Ending, why)
		s.working, s.adopted = true, true
		s.todo = append(s.todo, do{action: doStopOrphan, pod: s.pod, status: e.status})
		return
	}
	s.become(Ended, why)
	s.removeNow()
}

// stub returns what is known of a pod that only the runtime has.
func stub(s *podcache.Status) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: s.UID, Name: s.Name, Namespace: s.Namespace}}
}

// resumed has a static pod that StopPods has ended begin again. An API pod has failed for good.
func (s *step) resumed() {
	if !s.stopped {
		return
	}
	s.stopped = false
	if s.source == "" || s.remove == deleted || s.remove == evicted || !s.static() {
		return
	}
	switch s.state {
	case Ending:
		s.again = true
	case Ended:
		s.again = true
		s.removeNow()
	case Removed:
		s.beginAgain("its shutdown was cancelled")
	case Offered, Refused, Admitted, Gone:
	}
}
