package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/container"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
	kubelettypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/kubeparts/kubeparts/status"
)

// managerOfKubelet drives the kubelet's manager.
type managerOfKubelet struct {
	m     kubeletstatus.Manager
	play  *managerPlay
	calls []string
}

func newManagerOfKubelet(p *managerPlay) statusManager {
	k := &managerOfKubelet{play: p}
	k.m = kubeletstatus.NewManager(p.api, k, k, k)
	k.m.AddPodUpdateNotifier(k)
	var known []*corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(p.pods)) {
		known = append(known, p.pods[uid])
	}
	k.m.BackfillPodResizeConditions(known)
	return k
}

func (k *managerOfKubelet) OnPodUpdated(pod *corev1.Pod, _ corev1.PodStatus, _ bool) {
	k.calls = append(k.calls, pod.Name)
}

func (k *managerOfKubelet) OnPodRemoved(pod *corev1.Pod) {
	k.calls = append(k.calls, pod.Name+" finished")
}

func (k *managerOfKubelet) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	pod, ok := k.play.pods[uid]
	return pod, ok
}

func (k *managerOfKubelet) GetMirrorPodByPod(pod *corev1.Pod) (*corev1.Pod, bool) {
	mirror, ok := k.play.mirror[pod.UID]
	return mirror, ok
}

func (k *managerOfKubelet) TranslatePodUID(uid types.UID) kubelettypes.ResolvedPodUID {
	return kubelettypes.ResolvedPodUID(k.play.translate(uid))
}

func (k *managerOfKubelet) GetUIDTranslations() (map[kubelettypes.ResolvedPodUID]kubelettypes.MirrorPodUID, map[kubelettypes.MirrorPodUID]kubelettypes.ResolvedPodUID) {
	podToMirror, mirrorToPod := map[kubelettypes.ResolvedPodUID]kubelettypes.MirrorPodUID{}, map[kubelettypes.MirrorPodUID]kubelettypes.ResolvedPodUID{}
	for uid, pod := range k.play.pods {
		if !isStatic(pod) {
			continue
		}
		podToMirror[kubelettypes.ResolvedPodUID(uid)] = ""
		if mirror := k.play.mirror[uid]; mirror != nil {
			podToMirror[kubelettypes.ResolvedPodUID(uid)] = kubelettypes.MirrorPodUID(mirror.UID)
			mirrorToPod[kubelettypes.MirrorPodUID(mirror.UID)] = kubelettypes.ResolvedPodUID(uid)
		}
	}
	return podToMirror, mirrorToPod
}

func (k *managerOfKubelet) PodCouldHaveRunningContainers(pod *corev1.Pod) bool {
	return k.play.mayRun[types.UID(k.TranslatePodUID(pod.UID))]
}
func (*managerOfKubelet) RecordStatusUpdated(*corev1.Pod) {}
func (*managerOfKubelet) DeletePodStartupState(types.UID) {}

// set reports a status with the resize conditions, as the kubelet's status generation does.
// The status generation removes these conditions when the pod terminates.
func (k *managerOfKubelet) set(pod *corev1.Pod, s corev1.PodStatus) (corev1.PodStatus, bool) {
	for _, c := range k.m.GetPodResizeConditions(pod.UID) {
		if !isTerminal(s.Phase) {
			s.Conditions = append(s.Conditions, *c)
		}
	}
	stored, changed := k.m.SetPodStatus(klog.Background(), pod, s)
	if isTerminal(stored.Phase) {
		k.m.ClearPodResizePendingCondition(pod.UID)
		k.m.ClearPodResizeInProgressCondition(pod.UID)
	}
	return stored, changed
}

func (k *managerOfKubelet) get(uid types.UID) (corev1.PodStatus, bool) {
	return k.m.GetPodStatus(k.play.asked(uid))
}

func (k *managerOfKubelet) readiness(pod *corev1.Pod, id string, ready bool) {
	k.m.SetContainerReadiness(klog.Background(), pod.UID, container.ParseContainerID(id), ready)
}

func (k *managerOfKubelet) startup(pod *corev1.Pod, id string, started bool) {
	k.m.SetContainerStartup(klog.Background(), pod.UID, container.ParseContainerID(id), started)
}

func (k *managerOfKubelet) terminate(pod *corev1.Pod) { k.m.TerminatePod(klog.Background(), pod) }

func (k *managerOfKubelet) resize(pod *corev1.Pod, step *managerStep) string {
	switch step.Resize {
	case "pending":
		return fmt.Sprint(k.m.SetPodResizePendingCondition(pod.UID, step.Reason, "waits", pod.Generation))
	case "begin":
		_, changed := k.m.SetPodResizeInProgressCondition(pod.UID, step.Reason, map[bool]string{true: "begins"}[step.Reason != ""], pod.Generation)
		return fmt.Sprint(changed)
	case "end pending":
		k.m.ClearPodResizePendingCondition(pod.UID)
	default:
		_, changed := k.m.ClearPodResizeInProgressCondition(pod.UID)
		return fmt.Sprint(changed)
	}
	return ""
}

func (k *managerOfKubelet) orphans(keep map[types.UID]bool) {
	k.m.RemoveOrphanedStatuses(klog.Background(), keep)
}

func (k *managerOfKubelet) sync(ctx context.Context, all bool) { syncBatch(pointer(k.m), ctx, all) }

func (k *managerOfKubelet) notified() string {
	calls := strings.Join(slices.Compact(k.calls), ", ")
	k.calls = nil
	return calls
}

// managerOfOurs drives our manager and publisher.
type managerOfOurs struct {
	m         *status.Manager
	api       *status.APIServer
	publisher *status.Publisher
	play      *managerPlay
	mirrors   map[types.UID]types.UID   // the publisher's mirror pods
	last      map[types.UID]*corev1.Pod // the pod of each last accepted status
	versions  map[types.UID]uint64      // the last observed versions
	calls     []string
}

func newManagerOfOurs(p *managerPlay) statusManager {
	o := &managerOfOurs{play: p, mirrors: map[types.UID]types.UID{}, last: map[types.UID]*corev1.Pod{}, versions: map[types.UID]uint64{}}
	var err error
	must := func() {
		if err != nil {
			panic(err) // the configuration is valid
		}
	}
	o.m, err = status.New(status.Config{Observer: status.Observer{StatusChanged: func(c status.Change) {
		name := c.Pod.Name
		if c.Finished {
			name += " finished"
		}
		o.calls = append(o.calls, name)
		want := o.versions[c.Pod.UID] + 1
		if apiequality.Semantic.DeepEqual(c.Old, corev1.PodStatus{}) {
			want = 1
		}
		if o.versions[c.Pod.UID] = want; c.Version != want { // an internal number of the kubelet that is not visible
			o.calls = append(o.calls, fmt.Sprintf("version %d instead of %d", c.Version, want))
		}
	}, UpdateRefused: func(pod *corev1.Pod, _ error) { delete(o.last, pod.UID) }}, Pod: func(uid types.UID) (*corev1.Pod, bool) {
		pod, ok := p.pods[uid]
		return pod, ok
	}, TranslateUID: p.translate, Saved: func(uid types.UID) (corev1.PodStatus, bool) {
		mirror := p.mirror[uid]
		if mirror == nil {
			return corev1.PodStatus{}, false
		}
		return mirror.Status, true
	}})
	must()
	o.api, err = status.NewAPIServer(status.APIServerConfig{
		Pods:   func(string) status.PodClient { return podClient{api: p.api} },
		Mirror: func(static *corev1.Pod) (*corev1.Pod, bool) { mirror, ok := p.mirror[static.UID]; return mirror, ok },
		MayRun: func(uid types.UID) bool { return p.mayRun[uid] },
	})
	must()
	o.publisher, err = status.NewPublisher(status.PublisherConfig{
		Statuses: o.m, Sink: o.api, Workers: 1, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Random: func() float64 { return 0 },
	})
	must()
	return o
}

func (o *managerOfOurs) set(pod *corev1.Pod, s corev1.PodStatus) (stored corev1.PodStatus, changed bool) {
	last := o.last[pod.UID]
	o.last[pod.UID] = pod.DeepCopy()
	if _, reported := o.get(pod.UID); reported && len(s.ContainerStatuses)%2 == 0 && apiequality.Semantic.DeepEqual(last, pod) {
		// The same change by another method.
		changed = o.m.Update(pod.UID, func(was *corev1.PodStatus) { s.DeepCopyInto(was) })
		stored, _ = o.get(pod.UID)
		return stored, changed
	}
	return o.m.SetPodStatus(pod.DeepCopy(), s)
}

// get returns the reported status. A status that was saved before a restart does not count.
func (o *managerOfOurs) get(uid types.UID) (corev1.PodStatus, bool) {
	reported := false
	o.m.Subscribe(status.Observer{StatusChanged: func(c status.Change) { reported = reported || c.Pod.UID == uid }})()
	s, _ := o.m.GetPodStatus(o.play.asked(uid))
	return s, reported
}

func (o *managerOfOurs) readiness(pod *corev1.Pod, id string, ready bool) {
	o.m.SetContainerReadiness(pod.UID, id, ready)
}

func (o *managerOfOurs) startup(pod *corev1.Pod, id string, started bool) {
	o.m.SetContainerStartup(pod.UID, id, started)
}

func (o *managerOfOurs) terminate(pod *corev1.Pod) { o.m.TerminatePod(pod.DeepCopy()) }

func (o *managerOfOurs) resize(pod *corev1.Pod, step *managerStep) string {
	switch step.Resize {
	case "pending":
		return fmt.Sprint(o.m.SetPodResizePending(pod.UID, step.Reason, "waits", pod.Generation))
	case "begin":
		return fmt.Sprint(o.m.SetPodResizeInProgress(pod.UID, step.Reason, map[bool]string{true: "begins"}[step.Reason != ""], pod.Generation))
	case "end pending":
		o.m.ClearPodResizePending(pod.UID)
	default:
		return fmt.Sprint(o.m.ClearPodResizeInProgress(pod.UID))
	}
	return ""
}

func (o *managerOfOurs) orphans(keep map[types.UID]bool) {
	o.m.RemoveOrphanedStatuses(func(uid types.UID) bool { return keep[uid] })
}

func (o *managerOfOurs) sync(ctx context.Context, all bool) {
	for _, uid := range slices.Sorted(maps.Keys(o.play.pods)) {
		pod := o.play.pods[uid]
		if isStatic(pod) {
			pod = o.play.mirror[uid]
		}
		if pod == nil {
			continue
		}
		o.api.RecordObject(uid, pod.DeepCopy())
		if all || o.mirrors[uid] != pod.UID && pod.UID != uid {
			o.publisher.Trigger(uid)
		}
		o.mirrors[uid] = pod.UID
	}
	_ = o.publisher.Sync(ctx) // the next step retries a failure
}

func (o *managerOfOurs) notified() string {
	calls := strings.Join(slices.Compact(o.calls), ", ")
	o.calls = nil
	return calls
}
