package podloop

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// record is what the loop knows of the pod of one UID. It is a value: next returns the one that
// follows. The record of an unknown pod has the state Gone and its UID.
type record struct {
	uid   types.UID
	state State
	// pod is the definition that counts: the one that was admitted, or waits for that. Of a pod
	// that only the runtime knows it has names and UID.
	pod *corev1.Pod
	// newer is a definition that came later: an edit that waits for its answer or was refused,
	// or what a pod is to be when it begins again.
	newer *corev1.Pod
	// source is the name of the source that defines the pod. Empty: no source does.
	source string
	// version is that of the last question to admission. Older answers do not count.
	version uint64
	// refusal is why the pod, or the edit of an admitted one, was refused. It stays while
	// the pod is asked about again.
	refusal lifecycle.PodAdmitResult
	// working reports that a worker has the pod and has not finished.
	working bool
	// removing reports that the remover has the pod.
	removing bool
	// remove is why nothing may be left of a pod that a source defines.
	remove removal
	// again reports that the pod begins again when nothing is left of its earlier life.
	again bool
	// stopped reports that StopPods has ended the pod.
	stopped bool
	// endedBy is the serial of the event by which the pod has ended. Zero: it has not.
	endedBy uint64
	// adopted reports that the pod ran before this agent began.
	adopted bool
	// why is the reason of the last change of state, and since its time.
	why   string
	since time.Time
	// grace is the grace period with which the pod was killed, nil for its own.
	grace *time.Duration
}

// removal is why nothing may be left of a pod that a source defines.
type removal uint8

const (
	keep    removal = iota // what has ended stays until its source does not define it any more
	deleted                // the API server deletes the pod
	evicted                // what is left may be what the node is short of
	emptied                // StopPods leaves nothing on the node
)

// leaving reports whether the remover is to remove what is left of the pod, once it has ended.
func (r record) leaving() bool { return r.source == "" || r.remove != keep || r.again }

// static reports whether the pod is asked about again after a refusal.
func (r record) static() bool { return podspec.IsStatic(r.pod) }

// eventKind is the kind of an event.
type eventKind uint8

const (
	// evDefined is a pod that a source defines, new or changed.
	evDefined eventKind = iota
	// evDeleted is a pod that has a deletion timestamp. Its source defines it until it is gone.
	evDeleted
	// evReconciled is a pod of which only the status has changed at its source.
	evReconciled
	// evUndefined is a pod that no source defines any more.
	evUndefined
	// evAnswered is the answer of admission.
	evAnswered
	// evRetry asks about refused pods and edits again: the node has changed.
	evRetry
	// evSynced is a change of something outside that the pod depends on.
	evSynced
	// evKilled ends a pod.
	evKilled
	// evMoved is another phase of the pod's worker.
	evMoved
	// evRemoved is that nothing is left of the pod.
	evRemoved
	// evFound is a pod that only the runtime or the disk has.
	evFound
	// evResumed is that StopPods was cancelled.
	evResumed
)

// event is something that happened to a pod, with what is known at that moment.
type event struct {
	kind eventKind
	uid  types.UID
	// serial is larger than that of each event before. A question that follows from an event
	// has it as its version.
	serial uint64
	// runs reports that something of the pod may run.
	runs bool

	// pod and source are of evDefined, evDeleted and evReconciled. ended reports that the pod
	// had ended before this agent began, or has ended by its status at the API server.
	pod    *corev1.Pod
	source string
	ended  bool
	// version and result are of evAnswered.
	version uint64
	result  lifecycle.PodAdmitResult
	// how, stopped and remove are of evKilled: how the pod ends, whether it is StopPods that
	// ends it, and what becomes of what is left.
	how     podworker.KillOptions
	stopped bool
	remove  removal
	// phase is of evMoved.
	phase podworker.Phase
	// status is of evFound.
	status *podcache.Status
}

// action is what the loop does after an event.
type action uint8

const (
	// doAsk asks admission about the pod, or about an edit of it.
	doAsk action = iota
	// doRelease returns the pod's place on the node, and what allocators gave to it.
	doRelease
	// doStart gives the pod to a worker, doUpdate gives it a newer definition, and doSync has
	// it look at the pod.
	doStart
	doUpdate
	doSync
	// doStop has the worker end the pod, and doResume has a new one go on ending it. doStopOrphan
	// ends a pod without a definition.
	doStop
	doResume
	doStopOrphan
	// doRefuse and doRefuseEdit record a refusal, and doUnrefuse forgets the status that the
	// refusal gave to the pod.
	doRefuse
	doRefuseEdit
	doUnrefuse
	// doPublish publishes the pod's status again, and doTerminate as that of a pod of which
	// nothing is left.
	doPublish
	doTerminate
	// doEnded reports that the pod holds nothing of the node any more.
	doEnded
	// doRemove removes all that is left of the pod.
	doRemove
	// doForget has workers and statuses forget the pod, and doForgetWorker only the workers.
	doForget
	doForgetWorker
)

// do is one step of what follows from an event.
type do struct {
	action action
	pod    *corev1.Pod
	// version and edit are of doAsk.
	version uint64
	edit    bool
	// how is of doStop.
	how podworker.KillOptions
	// result is of doRefuse and doRefuseEdit.
	result lifecycle.PodAdmitResult
	// status is of doStopOrphan.
	status *podcache.Status
}

// sameSpec reports whether two definitions of a pod run the same.
func sameSpec(a, b *corev1.Pod) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
