package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// ours is our side.
type ours struct {
	*node
	t     *testing.T
	w     world
	step  step
	facts judge.Facts

	manager *prober.Manager
	cancel  context.CancelFunc
	began   time.Time
	pod     *corev1.Pod
	renewed bool

	status   *corev1.PodStatus
	ran      []string
	events   []string
	announce map[string]string
	told     map[prober.Key]prober.Change
	results  map[prober.Key]prober.Change // results after the last step
}

// playOurs plays a world against our prober.
func playOurs(t *testing.T, w world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &ours{node: newNode(w), t: t, w: w, pod: w.pod(10), announce: map[string]string{}}
		o.start()
		o.manager.AddPod(o.pod)
		for _, s := range w.Steps {
			time.Sleep(s.After)
			began := time.Now()
			o.play(s)
			time.Sleep(lasts(s, w) - time.Since(began))
			all = append(all, o.facts)
		}
		o.end()
	})
	return all
}

// start creates a manager.
func (o *ours) start() {
	cfg := prober.Config{
		Lookup: o.lookup, Runner: o, Events: o, EventPolicy: prober.EventsAlways,
		LivenessErrors: o.w.Errors, ReadinessErrors: o.w.Errors, StartupErrors: o.w.Errors,
	}
	cfg.UnreadyOnStop = o.w.Unready
	if o.w.Quiet {
		cfg.EventPolicy = prober.EventsOnChange
	}
	m, err := prober.New(cfg)
	require.NoError(o.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	changes := m.Results(ctx)
	go func() {
		for c := range changes {
			o.announced(c)
		}
	}()
	o.manager, o.cancel, o.began, o.told = m, cancel, time.Now(), map[prober.Key]prober.Change{}
	o.results = map[prober.Key]prober.Change{}
}

func (o *ours) end() {
	o.manager.RemovePod(podUID)
	o.cancel()
	synctest.Wait()
}

// announced handles a change of a result as an agent does.
func (o *ours) announced(c prober.Change) {
	if last, was := o.told[c.Key]; was && last == c && c.Result == prober.Success {
		o.t.Errorf("an announced change changes nothing: %+v", c)
	}
	o.told[c.Key] = c
	if !o.isRunning(c.ContainerID) || o.status == nil {
		return
	}
	for _, list := range [][]corev1.ContainerStatus{o.status.InitContainerStatuses, o.status.ContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == "containerd://"+c.ContainerID && tell(&list[i], c.Kind, c.Result == prober.Success) {
				o.announce[c.Container+"/"+c.Kind.String()] = c.ContainerID + " " + c.Result.String()
			}
		}
	}
}

// play plays a step and records the observations.
func (o *ours) play(s step) {
	o.step, o.facts, o.ran, o.events = s, judge.Facts{}, nil, nil
	clear(o.announce)
	if s.adds(o.stopped || o.ended()) {
		o.manager.AddPod(o.pod)
	}
	if s.removes() {
		defer func() { o.pod = o.w.pod(10) }() // a pod with the same UID may be created again
	}
	if s.Op == opStart && s.Container < len(o.containers) && o.containers[s.Container].State == running {
		o.apply(step{Op: opExit, Container: s.Container, Code: s.Code}) // this exit is observed
		o.sync()
	}
	o.apply(s)
	o.sync()
	switch s.Op {
	case opProbe:
		o.probe(s.Container, s.Kind)
	case opAll:
		for i := range o.w.Containers {
			for kind := range kinds {
				o.probe(i, prober.Kind(kind))
			}
		}
	case opDelete, opStop:
		if s.Op == opDelete {
			o.pod = o.pod.DeepCopy()
			o.pod.DeletionTimestamp = new(metav1.Now())
		}
		o.manager.StopLivenessAndStartup(podUID)
	case opRemove:
		o.manager.RemovePod(podUID)
	case opCleanup:
		o.cleanup(s)
	case opPublish:
		o.pod = o.pod.DeepCopy()
		o.pod.Status = published(*o.status)
	case opRestart:
		if !o.restarts() {
			break
		}
		o.end()
		o.status = nil
		o.renewed = true
		o.start()
		if !o.stopped && !o.ended() {
			o.manager.AddPod(o.pod)
		}
	default:
	}
	if o.renewed || s.Op == opRefresh {
		o.manager.Refresh(podUID)
	}
	o.sync()
	synctest.Wait()
	o.note()
}

// cleanup records which pods are removed, and whether the manager's result agrees.
func (o *ours) cleanup(s step) {
	for _, pod := range s.others() {
		o.manager.AddPod(pod)
	}
	var asked []types.UID
	removed := o.manager.CleanupPods(func(uid types.UID) bool {
		asked = append(asked, uid)
		return s.keeps(uid)
	})
	var gone []string
	for _, pod := range s.others() {
		if o.manager.Result(prober.Key{PodUID: pod.UID, Container: "z", Kind: prober.Readiness}, "") == prober.NoProbe {
			gone = append(gone, string(pod.UID))
		}
	}
	want := len(gone)
	if !s.Keep && slices.Contains(asked, podUID) {
		want++
	}
	require.Equal(o.t, want, removed)
	require.True(o.t, slices.IsSorted(asked))
	o.facts["other pods that go"] = strings.Join(gone, " ")
	o.manager.RemovePod("uid-9")
}

func (o *ours) probe(container int, kind prober.Kind) {
	began := time.Now()
	_, err := o.manager.Probe(context.Background(), prober.Key{PodUID: podUID, Container: o.w.Containers[container].Name, Kind: kind})
	if err != nil && !errors.Is(err, prober.ErrNotRunnable) && !errors.Is(err, prober.ErrNoProbe) {
		o.t.Errorf("probe: %v", err)
	}
	if o.step.outcomeOf(container, int(kind)) == hangs {
		time.Sleep(hang - time.Since(began))
	}
	synctest.Wait()
}

func (o *ours) sync() {
	made := o.node.status(o.w)
	if o.status != nil {
		inheritSame(made.ContainerStatuses, o.status.ContainerStatuses)
		inheritSame(made.InitContainerStatuses, o.status.InitContainerStatuses)
	}
	o.manager.UpdatePodStatus(o.pod, &made)
	o.status = &made
}

// inheritSame does what our status generation does: the previous values of the same container
// are kept until its probes have a result.
func inheritSame(made, old []corev1.ContainerStatus) {
	for i := range made {
		j := slices.IndexFunc(old, func(o corev1.ContainerStatus) bool { return o.ContainerID == made[i].ContainerID })
		if j >= 0 && made[i].ContainerID != "" && made[i].State.Running != nil {
			made[i].Started, made[i].Ready = old[j].Started, old[j].Ready
		}
	}
}

// lookup is for the manager.
func (o *ours) lookup(_ types.UID, name string) (prober.Target, bool) {
	if o.forgotten {
		return prober.Target{}, false
	}
	l := o.containers[name[0]-'a']
	t := prober.Target{
		ID: l.ID, PodIP: "10.0.0.1",
		Ended: o.ended(),
	}
	switch l.State {
	case running:
		t.State, t.StartedAt = prober.Running, l.StartedAt
	case exited:
		t.State = prober.Exited
	case gone, created, notKnown:
	}
	if l.State == running && l.StartedAt.Before(o.began) {
		t.Started = started(o.pod.Status, l.ID)
	}
	return t, true
}

// started reports whether a container has started according to a status.
func started(st corev1.PodStatus, id string) bool {
	for _, c := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
		if c.ContainerID == "containerd://"+id {
			return c.Started != nil && *c.Started
		}
	}
	return false
}

// note notes the facts of a step.
func (o *ours) note() {
	o.facts["ran"] = strings.Join(o.ran, "\n")
	o.facts["events"] = strings.Join(o.events, "\n")
	for name, last := range o.announce {
		o.facts["announced "+name] = last
	}
	noteStatus(o.facts, *o.status)
	for i, c := range o.w.Containers {
		if l := o.containers[i]; l.State == exited && !o.stopped && !o.ended() && (!c.Init || c.Sidecar) {
			o.remembers(c)
		}
		o.tells(c, o.containers[i].ID)
		if o.containers[i].State != running {
			continue
		}
		for _, kind := range []prober.Kind{prober.Liveness, prober.Startup} {
			if o.manager.Result(prober.Key{PodUID: podUID, Container: c.Name, Kind: kind}, o.containers[i].ID) == prober.Failure {
				o.facts["kill "+c.Name] += kind.String()
			}
		}
	}
}

// remembers checks that the probes of a terminated container still exist.
func (o *ours) remembers(c container) {
	for k, p := range c.Probes {
		if p != nil {
			require.NotEqual(o.t, prober.NoProbe, o.manager.Result(prober.Key{PodUID: podUID, Container: c.Name, Kind: prober.Kind(k)}, ""))
		}
	}
}

// tells checks that each changed result was announced.
func (o *ours) tells(c container, id string) {
	for k := range c.Probes {
		key := prober.Key{PodUID: podUID, Container: c.Name, Kind: prober.Kind(k)}
		was, is := o.results[key], prober.Change{Key: key, ContainerID: id, Result: o.manager.Result(key, id)}
		if was.ContainerID == id && (was.Result == prober.Success && is.Result == prober.Failure || was.Result == prober.Failure && is.Result == prober.Success) {
			require.Equal(o.t, is, o.told[key])
		}
		o.results[key] = is
	}
}

// notFound is the error for a missing command, with the text of the kubelet's side.
type notFound struct{}

func (notFound) Error() string        { return string(missing) }
func (notFound) Is(target error) bool { return target == prober.ErrCommandNotFound }

// Exec is for the manager.
func (o *ours) Exec(_ context.Context, r prober.ExecRequest) (int32, error) {
	o.ran = append(o.ran, fmt.Sprintf("%s %v %s", r.ContainerID, r.Command, r.Timeout))
	out := o.step.outcomeFor(r.Command)
	if out == succeeds || out == fails {
		_, _ = io.WriteString(r.Output, out.output(r.Command)) // it never fails
	}
	switch out {
	case succeeds:
		return 0, nil
	case fails:
		return 1, nil
	case hangs:
		time.Sleep(r.Timeout + 50*time.Millisecond)
		return 0, context.DeadlineExceeded
	case missing:
		return 0, notFound{}
	default:
		return 0, errors.New(string(out))
	}
}

// Eventf is for the manager.
func (o *ours) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	o.events = append(o.events, eventText(object, eventtype, reason, fmt.Sprintf(format, args...)))
}
