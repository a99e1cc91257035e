package prober

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletprober "k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// never is a period in seconds that is longer than any scenario.
const never = 1<<31 - 1

// kubelet is the kubelet's side: its manager, and a model of the code around it.
type kubelet struct {
	*node
	w     world
	step  step
	facts judge.Facts

	manager kubeletprober.Manager
	results [kinds]results.Manager
	pod     *corev1.Pod

	status *corev1.PodStatus // the status in the status manager
	// silent makes a worker's run do nothing.
	silent   bool
	ran      []string
	events   []string
	announce map[string]string
}

// playKubelet plays a world against the kubelet's prober.
func playKubelet(t *testing.T, w world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		k := &kubelet{node: newNode(w), w: w, pod: w.pod(never)}
		k.start()
		k.add()
		for _, s := range w.Steps {
			time.Sleep(s.After)
			began := time.Now()
			k.play(s)
			time.Sleep(lasts(s, w) - time.Since(began))
			all = append(all, k.facts)
		}
		k.end()
	})
	return all
}

// start makes a manager.
func (k *kubelet) start() {
	for i := range k.results {
		k.results[i] = results.NewManager()
	}
	k.manager = kubeletprober.NewManager(statuses{k: k}, k.results[prober.Liveness], k.results[prober.Readiness],
		k.results[prober.Startup], k, recorder{k: k})
}

// end stops all workers and waits for them.
func (k *kubelet) end() {
	k.silent = true
	k.manager.CleanupPods(nil)
	synctest.Wait()
}

// add calls AddPod, and makes the first runs of the new workers do nothing. A worker whose
// period is longer than the age of the manager first waits for a random time, so add
// temporarily increases the age.
func (k *kubelet) add() { k.addPod(k.pod) }

func (k *kubelet) addPod(pod *corev1.Pod) {
	start := (*time.Time)(k.field("start"))
	began := *start
	*start = time.Time{}
	k.quietly(func() { k.manager.AddPod(context.Background(), pod) })
	*start = began
}

// quietly calls f, and makes the runs that f triggers do nothing.
func (k *kubelet) quietly(f func()) {
	k.silent = true
	f()
	synctest.Wait()
	k.silent = false
}

// field returns a field of the manager.
func (k *kubelet) field(name string) unsafe.Pointer {
	return unsafe.Pointer(reflect.ValueOf(k.manager).Elem().FieldByName(name).UnsafeAddr())
}

// worker returns the channel that triggers a worker, or nil.
func (k *kubelet) worker(container string, kind prober.Kind) chan struct{} {
	// The kubelet's numbers of the kinds.
	number := [kinds]int64{prober.Liveness: 0, prober.Readiness: 1, prober.Startup: 2}[kind]
	for key, w := range reflect.ValueOf(k.manager).Elem().FieldByName("workers").Seq2() {
		if key.FieldByName("containerName").String() == container && key.FieldByName("probeType").Int() == number {
			return *(*chan struct{})(unsafe.Pointer(w.Elem().FieldByName("manualTriggerCh").UnsafeAddr()))
		}
	}
	return nil
}

// play plays a step and records the observations.
func (k *kubelet) play(s step) {
	k.step, k.facts, k.ran, k.events, k.announce = s, judge.Facts{}, nil, nil, map[string]string{}
	if s.adds(k.stopped || k.ended()) {
		k.add()
	}
	if s.removes() {
		defer func() { k.pod = k.w.pod(never) }() // a pod with the same UID may be created again
	}
	if s.Op == opStart && s.Container < len(k.containers) && k.containers[s.Container].State == running {
		k.apply(step{Op: opExit, Container: s.Container, Code: s.Code}) // this exit is observed
		k.sync()
	}
	k.apply(s)
	k.sync()
	switch s.Op {
	case opProbe:
		k.probe(s.Container, s.Kind)
	case opAll:
		for i := range k.w.Containers {
			for kind := range kinds {
				k.probe(i, prober.Kind(kind))
			}
		}
	case opDelete, opStop:
		if s.Op == opDelete {
			k.pod = k.pod.DeepCopy()
			k.pod.DeletionTimestamp = new(metav1.Now())
		}
		k.manager.StopLivenessAndStartup(k.pod)
	case opRemove:
		k.manager.RemovePod(k.pod)
	case opCleanup:
		desired := map[types.UID]sets.Empty{}
		if s.Keep {
			desired[podUID] = sets.Empty{}
		}
		k.cleanup(s, desired)
	case opPublish:
		k.pod = k.pod.DeepCopy()
		k.pod.Status = published(*k.status)
	case opRestart:
		if !k.restarts() {
			break
		}
		k.end()
		k.status = nil
		k.start()
		if !k.stopped && !k.ended() {
			k.add()
		}
	default:
	}
	synctest.Wait()
	k.sync()
	k.note()
}

// cleanup records which of the other pods are removed: the pods without a worker.
func (k *kubelet) cleanup(s step, desired map[types.UID]sets.Empty) {
	others := s.others()
	for _, pod := range others {
		k.addPod(pod)
		if s.keeps(pod.UID) {
			desired[pod.UID] = sets.Empty{}
		}
	}
	k.manager.CleanupPods(desired)
	synctest.Wait()
	left := map[string]bool{}
	for key := range reflect.ValueOf(k.manager).Elem().FieldByName("workers").Seq2() {
		left[key.FieldByName("podUID").String()] = true
	}
	var gone []string
	for _, pod := range others {
		if !left[string(pod.UID)] {
			gone = append(gone, string(pod.UID))
		}
		k.manager.RemovePod(pod)
	}
	k.facts["other pods that go"] = strings.Join(gone, " ")
}

// probe wakes one worker and waits until it has done its work.
func (k *kubelet) probe(container int, kind prober.Kind) {
	if wake := k.worker(k.w.Containers[container].Name, kind); wake != nil {
		wake <- struct{}{}
	}
	if k.step.outcomeOf(container, int(kind)) == hangs {
		time.Sleep(hang)
	}
	synctest.Wait()
	k.drain()
}

// drain handles the announced results, as the sync loop does.
func (k *kubelet) drain() {
	for kind, m := range k.results {
		for len(m.Updates()) > 0 {
			u := <-m.Updates()
			k.announced(prober.Kind(kind), u)
		}
	}
}

// announced does what the sync loop does with a result.
func (k *kubelet) announced(kind prober.Kind, u results.Update) {
	if kind == prober.Liveness && u.Result != results.Failure || k.status == nil {
		return
	}
	for _, list := range [][]corev1.ContainerStatus{k.status.InitContainerStatuses, k.status.ContainerStatuses} {
		for i := range list {
			if list[i].ContainerID != u.ContainerID.String() {
				continue
			}
			if k.isRunning(u.ContainerID.ID) && tell(&list[i], kind, u.Result == results.Success) {
				k.announce[list[i].Name+"/"+kind.String()] = u.ContainerID.ID + " " + u.Result.String()
			}
		}
	}
}

// sync generates the status again. The runs that this triggers do nothing.
func (k *kubelet) sync() {
	made := k.node.status(k.w)
	old := k.pod.Status
	if k.status != nil {
		old = *k.status
	}
	inherit(made.ContainerStatuses, old.ContainerStatuses)
	inherit(made.InitContainerStatuses, old.InitContainerStatuses)
	k.quietly(func() { k.manager.UpdatePodStatus(context.Background(), k.pod, &made) })
	k.status = &made
}

// inherit applies the parts of the status generation that do not depend on the runtime. A
// running container inherits Started from the previous status with its name. A container whose
// state is now unknown has terminated if the previous status showed it as running or
// terminated.
func inherit(made, old []corev1.ContainerStatus) {
	for i := range made {
		j := slices.IndexFunc(old, func(o corev1.ContainerStatus) bool { return o.Name == made[i].Name })
		if j < 0 {
			continue
		}
		if made[i].State.Running != nil {
			made[i].Started = old[j].Started
		}
		if made[i].State.Waiting != nil && made[i].ContainerID != "" && made[i].ContainerID == old[j].ContainerID &&
			(old[j].State.Running != nil || old[j].State.Terminated != nil) {
			made[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
		}
	}
}

// note notes the facts of a step.
func (k *kubelet) note() {
	k.facts["ran"] = strings.Join(k.ran, "\n")
	k.facts["events"] = strings.Join(k.events, "\n")
	for name, last := range k.announce {
		k.facts["announced "+name] = last
	}
	noteStatus(k.facts, *k.status)
	for i, c := range k.w.Containers {
		id := kubecontainer.ContainerID{Type: "containerd", ID: k.containers[i].ID}
		if k.containers[i].State != running {
			continue
		}
		for _, kind := range []prober.Kind{prober.Liveness, prober.Startup} {
			if r, found := k.results[kind].Get(id); found && r == results.Failure {
				k.facts["kill "+c.Name] += kind.String()
			}
		}
	}
}

// statuses is the status manager.
type statuses struct {
	status.Manager
	k *kubelet
}

func (s statuses) GetPodStatus(types.UID) (corev1.PodStatus, bool) {
	if s.k.silent || s.k.forgotten || s.k.status == nil {
		return corev1.PodStatus{}, false
	}
	return *s.k.status.DeepCopy(), true
}

// RunInContainer is for the kubelet's runner of commands.
func (k *kubelet) RunInContainer(_ context.Context, id kubecontainer.ContainerID, command []string, timeout time.Duration) ([]byte, error) {
	k.ran = append(k.ran, fmt.Sprintf("%s %v %s", id.ID, command, timeout))
	o := k.step.outcomeFor(command)
	out := []byte(o.output(command))
	switch o {
	case succeeds:
		return out, nil
	case fails:
		return out, utilexec.CodeExitError{Err: errors.New("it exited"), Code: 1}
	case hangs:
		time.Sleep(timeout)
		return nil, fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, strings.Join(command, " "), timeout)
	default:
		return nil, errors.New(string(o))
	}
}

// recorder is the recorder of events.
type recorder struct {
	record.EventRecorderLogger
	k *kubelet
}

func (r recorder) WithLogger(klog.Logger) record.EventRecorderLogger { return r }

func (r recorder) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	r.k.events = append(r.k.events, eventText(object, eventtype, reason, fmt.Sprintf(format, args...)))
}
