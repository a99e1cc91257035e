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

// record is the state of the pod with one UID. It is a value: the function next returns a new
// record. The record of an unknown pod has only the UID and the state Gone.
type record struct {
	uid   types.UID
	state State
	// pod is the current definition. In the state Admitted, it is the definition that was admitted.
	// If the pod exists only in the runtime, pod has only the name, the namespace and the UID.
	pod *corev1.Pod
	// newer is a later definition: an edit that waits for admission or was refused, or a
	// definition that the source has delivered while the pod is ending.
	newer *corev1.Pod
	// source is the name of the source that defines the pod. Empty means that no source defines
	// the pod.
	source string
	// version is the serial of the event that caused the last admission request, or of a later event
	// that made the request obsolete. An answer to a request with another version is ignored.
	version uint64
	// refusal is the result of the admission that refused the pod, or the edit of an admitted
	// pod. It stays set while admission is retried.
	refusal lifecycle.PodAdmitResult
	// hasWorker reports whether the pod has a worker that has not finished.
	hasWorker bool
	// removing reports whether the remover is removing the pod.
	removing bool
	// removalReason is why the agent removes the data of a pod that a source still defines.
	removalReason removal
	// restartAfterRemoval reports whether the pod starts again when its earlier run is
	// completely removed.
	restartAfterRemoval bool
	// stopped reports whether StopPods has ended the pod.
	stopped bool
	// endedBy is the serial of the last event that ended the pod. It does not change when the pod
	// starts again. Zero means that no event has ended the pod.
	endedBy uint64
	// adopted reports whether the pod ran before this agent started.
	adopted bool
	// The next two fields have the reason and the time of the last change of state.
	why   string
	since time.Time
	// grace is the grace period with which the pod was killed. Nil means the pod's own grace
	// period.
	grace *time.Duration
}

// removal is why the agent removes the data of a pod that a source still defines.
type removal uint8

const (
	keepData removal = iota // nothing is removed while a source defines the pod
	deleted                 // the API server deletes the pod
	evicted                 // the pod's data may use the resource that the node lacks
	emptied                 // StopPods removes all data of pods
)

// leaving reports whether the remover removes the pod's data after the pod has ended.
func (r record) leaving() bool {
	return r.source == "" || r.removalReason != keepData || r.restartAfterRemoval
}

// static reports whether the pod is static. The admission of a static pod is retried after a
// refusal.
func (r record) static() bool { return podspec.IsStatic(r.pod) }

// eventKind is the kind of an event.
type eventKind uint8

const (
	// evDefined is a new or changed definition of a pod.
	evDefined eventKind = iota
	// evDeleted is a definition with a deletion timestamp. The source defines the pod until the
	// pod is removed.
	evDeleted
	// evReconciled is a definition in which only the status has changed.
	evReconciled
	// evUndefined means that no source defines the pod any more.
	evUndefined
	// evAnswered is the result of an admission.
	evAnswered
	// evRetry retries the admission of refused pods and edits, because the node has changed or
	// another pod has ended.
	evRetry
	// evDependencyChanged is the change of a dependency of the pod, such as a Secret.
	evDependencyChanged
	// evKilled stops a pod.
	evKilled
	// evPhaseChanged is a new phase of the pod's worker.
	evPhaseChanged
	// evRemoved is the complete removal of the pod.
	evRemoved
	// evFound is a pod that exists only in the runtime or on the disk.
	evFound
	// evResumed is the cancellation of StopPods.
	evResumed
)

// event is something that happened to a pod, with the facts at that moment.
type event struct {
	kind eventKind
	uid  types.UID
	// serial is larger than the serial of any earlier event. It becomes the version of an admission
	// request that results from the event.
	serial uint64
	// runs reports whether a container of the pod is possibly running.
	runs bool

	// pod and source are set for evDefined, evDeleted and evReconciled. ended reports whether
	// the pod had ended before this agent started, or has ended according to the status in its
	// definition.
	pod    *corev1.Pod
	source string
	ended  bool
	// version and result are set for evAnswered.
	version uint64
	result  lifecycle.PodAdmitResult
	// how, stopped and removalReason are set for evKilled: how the pod is stopped, whether StopPods
	// stops it, and why its data is removed.
	how           podworker.KillOptions
	stopped       bool
	removalReason removal
	// phase is set for evPhaseChanged.
	phase podworker.Phase
	// status is set for evFound.
	status *podcache.Status
}

// action is an action of the loop after an event.
type action uint8

const (
	// doAdmit requests the admission of the pod or of an edit.
	doAdmit action = iota
	// doRelease removes the pod from the active pods of the admission queue, and releases its
	// allocations.
	doRelease
	// doStart starts a worker for the pod, doUpdate passes a newer definition to the worker,
	// and doSync makes the worker sync the pod.
	doStart
	doUpdate
	doSync
	// doStop makes the worker stop the pod, and doResume starts a worker for a pod that has a
	// deletion timestamp. doStopOrphan starts a worker that stops a pod without a definition.
	doStop
	doResume
	doStopOrphan
	// doRefuse and doRefuseEdit record a refusal, and doUnrefuse deletes the status that
	// doRefuse has set.
	doRefuse
	doRefuseEdit
	doUnrefuse
	// doReportEdit reports an edit of an admitted pod to the observer.
	doReportEdit
	// doPublish publishes the pod's status again, and doTerminate publishes it as the status of
	// a completely removed pod.
	doPublish
	doTerminate
	// doEnded reports that the pod no longer uses resources of the node.
	doEnded
	// doRemove removes all remaining data of the pod.
	doRemove
	// doForget deletes the pod from the workers, probes and statuses, and doForgetWorker only
	// from the workers.
	doForget
	doForgetWorker
)

// do is one action with its arguments.
type do struct {
	action action
	pod    *corev1.Pod
	// version and edit are set for doAdmit.
	version uint64
	edit    bool
	// The field how is set for doStop.
	how podworker.KillOptions
	// result is set for doRefuse and doRefuseEdit.
	result lifecycle.PodAdmitResult
	// status is set for doStopOrphan.
	status *podcache.Status
	before *corev1.Pod // for doReportEdit: the previous definition
}

// sameSpec reports whether two definitions of a pod have the same name and spec.
func sameSpec(a, b *corev1.Pod) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
