package status

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// managerPeer compares the two managers over histories of reports, probe results
// and calls of an API server.
func managerPeer() judge.Peer[*managerWorld] {
	return judge.Peer[*managerWorld]{
		Name: "status/manager", World: drawManagerWorld, Rules: managerRules(), Scenarios: 600,
		Kubelet: func(t *testing.T, w *managerWorld) []judge.Facts {
			t.Helper()
			return playManager(t, w, newManagerOfKubelet)
		},
		Ours: func(t *testing.T, w *managerWorld) []judge.Facts {
			t.Helper()
			return playManager(t, w, newManagerOfOurs)
		},
	}
}

// statusManager is one of the two managers.
type statusManager interface {
	set(pod *corev1.Pod, s corev1.PodStatus) (stored corev1.PodStatus, changed bool)
	get(uid types.UID) (corev1.PodStatus, bool)
	readiness(pod *corev1.Pod, id string, ready bool)
	startup(pod *corev1.Pod, id string, started bool)
	terminate(pod *corev1.Pod)
	resize(pod *corev1.Pod, step *managerStep) (result string)
	orphans(keep map[types.UID]bool)
	sync(ctx context.Context, all bool)
	notified() string // how often observers were called, and with which arguments
}

// managerPlay is the state of a history on one side.
type managerPlay struct {
	api    *apiServer
	pods   map[types.UID]*corev1.Pod // the agent's pods
	mirror map[types.UID]*corev1.Pod // mirror pods of static pods
	mayRun map[types.UID]bool
	make   func(*managerPlay) statusManager
	m      statusManager
}

func playManager(t *testing.T, w *managerWorld, newManager func(*managerPlay) statusManager) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &managerPlay{api: newAPIServer(), pods: map[types.UID]*corev1.Pod{}, mirror: map[types.UID]*corev1.Pod{}, mayRun: map[types.UID]bool{}, make: newManager}
		for _, pod := range w.Pods {
			if isStatic(pod) {
				p.pods[pod.UID] = pod
				p.reflect(pod)
				continue
			}
			p.pods[pod.UID] = p.api.put(pod)
		}
		p.m = newManager(p)
		for i := range w.Steps {
			step := &w.Steps[i]
			time.Sleep(step.Pause)
			all = append(all, p.turn(t.Context(), step, w.Pods[step.Pod]))
		}
	})
	return all
}

// reflect creates the mirror pod of a static pod.
func (p *managerPlay) reflect(static *corev1.Pod) {
	mirror := static.DeepCopy()
	mirror.UID = types.UID(fmt.Sprintf("mirror-%d-%s", p.api.version, static.UID))
	mirror.Annotations[mirrorAnnotation] = "hash"
	p.mirror[static.UID] = p.api.put(mirror)
}

// asked returns the UID under which the status of a pod is queried: that of its mirror pod,
// if it has one.
func (p *managerPlay) asked(uid types.UID) types.UID {
	if mirror := p.mirror[uid]; mirror != nil {
		return mirror.UID
	}
	return uid
}

// translate returns the UID of the static pod whose mirror has the given UID.
func (p *managerPlay) translate(uid types.UID) types.UID {
	for static, mirror := range p.mirror {
		if mirror.UID == uid {
			return static
		}
	}
	return uid
}

// turn plays a step.
func (p *managerPlay) turn(ctx context.Context, step *managerStep, spec *corev1.Pod) judge.Facts {
	f := judge.Facts{}
	pod := p.pods[spec.UID]
	p.api.fail = step.Fail
	clear(p.api.calls)
	switch {
	case step.Op == opSync, step.Op == opTick:
		p.mayRun[spec.UID] = step.MayRun && step.Op == opTick || p.mayRun[spec.UID] && step.Op == opSync
		p.m.sync(ctx, step.Op == opTick)
		p.watch()
		p.objects(f)
	case step.Op == opRestart:
		p.m = p.make(p)
	case step.Op == opOrphans:
		keep := map[types.UID]bool{}
		for uid := range p.pods {
			keep[uid] = true
		}
		p.m.orphans(keep)
	case step.Op == opFile && pod != nil:
		delete(p.pods, spec.UID)
		delete(p.mirror, spec.UID)
		delete(p.api.pods, spec.Name)
	case step.Op == opFile:
		p.pods[spec.UID] = spec
		p.reflect(spec)
	case pod == nil:
	case isStatic(pod) && p.api.pods[pod.Name] == nil:
		if step.Op == opOthers {
			p.reflect(pod)
		}
	default:
		p.act(step, pod, f)
		if !step.Lag {
			p.watch()
		}
	}
	if pod := p.pods[spec.UID]; pod != nil {
		if said, ok := p.m.get(pod.UID); ok {
			statusFacts(f, "said ", &said)
		}
	}
	f["notified"] = p.m.notified()
	return f
}

// act plays the events of one pod.
func (p *managerPlay) act(step *managerStep, pod *corev1.Pod, f judge.Facts) {
	switch step.Op {
	case opResize:
		if said, known := p.m.get(pod.UID); known && isTerminal(said.Phase) {
			return // no resize begins
		}
		f["resize"] = p.m.resize(pod, step)
		fallthrough
	case opSet:
		stored, changed := p.m.set(pod, p.report(step, pod))
		f["changed"] = strconv.FormatBool(changed)
		if said, known := p.m.get(pod.UID); known {
			f["returned"] = strconv.FormatBool(apiequality.Semantic.DeepEqual(stored, said))
		}
	case opReadiness:
		p.m.readiness(pod, p.id(pod, step.Container), step.Result)
	case opStartup:
		p.m.startup(pod, p.id(pod, step.Container), step.Result)
	case opTerminate:
		if _, known := p.m.get(pod.UID); known || !isStatic(pod) { // an agent reports first
			p.m.terminate(pod)
		}
	case opOthers:
		changed := p.api.pods[pod.Name].DeepCopy()
		for _, c := range step.Others {
			c.LastTransitionTime = metav1.Now()
			if was := condition(&changed.Status, c.Type); was != nil {
				*was = c
			} else {
				changed.Status.Conditions = append(changed.Status.Conditions, c)
			}
		}
		if step.Phase != "" && !isTerminal(changed.Status.Phase) {
			changed.Status.Phase, changed.Status.Reason = step.Phase, "NodeLost"
		}
		p.api.put(changed)
	case opDelete:
		changed := p.api.pods[pod.Name].DeepCopy()
		changed.DeletionTimestamp = new(metav1.Now())
		changed.Generation++
		p.api.put(changed)
	case opGone:
		delete(p.api.pods, pod.Name)
	}
}

// report returns the status to report. It respects an earlier termination of the pod, and the
// conditions of other clients.
func (p *managerPlay) report(step *managerStep, pod *corev1.Pod) corev1.PodStatus {
	s := *step.Status.DeepCopy()
	said, known := p.m.get(pod.UID)
	switch {
	case !step.Sticky:
	case known && isTerminal(said.Phase):
		s.Phase, s.Reason, s.Message = said.Phase, said.Reason, said.Message
	case isTerminal(pod.Status.Phase):
		s.Phase, s.Reason, s.Message = pod.Status.Phase, pod.Status.Reason, pod.Status.Message
	}
	conditions := slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate(0) || c.Type == gate(1) })
	for _, t := range []corev1.PodConditionType{gate(0), gate(1)} {
		if c := condition(&pod.Status, t); c != nil {
			conditions = append(conditions, *c)
		}
	}
	all := slices.Concat(s.InitContainerStatuses, s.ContainerStatuses)
	for _, c := range []corev1.PodCondition{
		kubeletstatus.GeneratePodInitializedCondition(pod, &corev1.PodStatus{}, all, s.Phase),
		kubeletstatus.GeneratePodReadyCondition(pod, &s, conditions, all, s.Phase),
		kubeletstatus.GenerateContainersReadyCondition(pod, &s, all, s.Phase),
	} {
		conditions[slices.IndexFunc(conditions, func(had corev1.PodCondition) bool { return had.Type == c.Type })] = c
	}
	s.Conditions = conditions
	return s
}

// id returns the container's ID as it is reported.
func (p *managerPlay) id(pod *corev1.Pod, name string) string {
	said, _ := p.m.get(pod.UID)
	for _, list := range [][]corev1.ContainerStatus{said.InitContainerStatuses, said.ContainerStatuses} {
		for _, st := range list {
			if st.Name == name {
				return st.ContainerID
			}
		}
	}
	return "containerd://unknown"
}

// watch updates the agent's pods from the API server.
func (p *managerPlay) watch() {
	for uid, pod := range p.pods {
		if isStatic(pod) {
			if p.mirror[uid] = p.api.pods[pod.Name].DeepCopy(); p.mirror[uid] == nil {
				delete(p.mirror, uid)
			}
			continue
		}
		switch now := p.api.pods[pod.Name]; {
		case now == nil || now.UID != uid:
			delete(p.pods, uid)
		case now.ResourceVersion != pod.ResourceVersion:
			p.pods[uid] = now.DeepCopy()
		}
	}
}

// objects adds the objects in the API server.
func (p *managerPlay) objects(f judge.Facts) {
	for name, pod := range p.api.pods {
		statusFacts(f, name+" ", &pod.Status)
	}
	for call, n := range p.api.calls {
		f["calls "+call] = strconv.Itoa(n)
	}
}
