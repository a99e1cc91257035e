package eviction

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	machinery "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelet "k8s.io/kubernetes/pkg/kubelet/eviction"
	kubeletapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A kubeletSide drives the kubelet's manager. Its collaborators run on the goroutine of the
// manager's loop. A turn begins when the loop asks for the layout or for the pods.
type kubeletSide struct {
	*machine
	t       *testing.T
	manager kubelet.Manager
	handler lifecycle.PodAdmitHandler
	pods    map[string]*corev1.Pod // pods that ask for admission
	opened  bool                   // the turn has begun with the request for the layout
	anew    bool                   // the agent has just restarted
	fresh   []threshold            // thresholds on which the turn may act
	left    chan string            // receives the reason for which the loop has ended
}

// playKubelet plays a world with the kubelet's manager.
func playKubelet(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kubeletSide{machine: newMachine(w), t: t, pods: newcomers(), left: make(chan string)}
		w.Notes, w.played = nil, k.machine
		for k.start(); <-k.left == "restart"; k.start() {
			k.restarted()
			k.anew = true
		}
		all = w.apart(k.all)
	})
	return all
}

func (k *kubeletSide) start() {
	k.opened, k.fresh = false, nil
	hard, soft, grace, reclaim := settingMaps(k.w)
	var allocatable []string
	if k.w.Allocatable {
		allocatable = []string{"pods"}
	}
	thresholds, err := kubelet.ParseThresholdConfig(allocatable, hard, soft, grace, reclaim)
	require.NoError(k.t, err)
	k.manager, k.handler = kubelet.NewManager(k, kubelet.Config{
		PressureTransitionPeriod: k.w.Transition, MaxPodGracePeriodSeconds: int64(k.w.MaxGrace), Thresholds: thresholds,
	}, k.kill, k, k, k, &corev1.ObjectReference{Kind: "Node", Name: "n"}, clock.RealClock{}, !k.w.NoLimits)
	ctx := klog.NewContext(k.t.Context(), logr.New(k))
	k.manager.Start(ctx, k, k.active, func(pod *corev1.Pod) bool { return k.isClean(pod.UID) }, k.w.Interval)
}

func settingMaps(w *world) (hard, soft, grace, reclaim map[string]string) {
	hard, soft, grace, reclaim = map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for _, s := range w.Settings {
		set := func(all map[string]string, value string) {
			if value != "" {
				all[string(s.Signal)] = value
			}
		}
		set(hard, s.Hard)
		set(soft, s.Soft)
		set(grace, s.Grace)
		set(reclaim, s.Reclaim)
	}
	return hard, soft, grace, reclaim
}

// turn begins a turn, or stops the loop.
func (k *kubeletSide) turn() {
	k.close()
	if len(k.all) >= k.w.Turns {
		k.leave("done")
	}
	if k.restartsBefore() {
		k.leave("restart")
	}
	k.begin()
	k.fresh = nil
	k.w.Notes = append(k.w.Notes, k.newNote())
	k.note().Restarted, k.anew = k.anew, false
}

func (k *kubeletSide) note() *note { return &k.w.Notes[len(k.w.Notes)-1] }

// close finishes the current step: it adds the observations after the step.
func (k *kubeletSide) close() {
	if k.step == nil {
		return
	}
	k.conditions(k.manager)
	for name, pod := range k.pods {
		r := k.handler.Admit(&lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation})
		k.set("admit "+name, admissionText(r.Admit, r.Reason, r.Message))
	}
	k.end()
}

// leave stops the manager's loop.
func (k *kubeletSide) leave(why string) {
	k.left <- why
	runtime.Goexit()
}

// HasDedicatedImageFs is called until it succeeds.
func (k *kubeletSide) HasDedicatedImageFs(context.Context) (bool, error) {
	k.turn()
	layout, ok := k.layout()
	if !ok {
		k.note().Blind = true
		return false, errWorld
	}
	k.opened = true
	return layout != eviction.SingleFS, nil
}

// HasDedicatedContainerFs is called once.
func (k *kubeletSide) HasDedicatedContainerFs(context.Context) (bool, error) {
	return k.w.Layout == eviction.SplitFS, nil
}

func (k *kubeletSide) active() []*corev1.Pod {
	if !k.opened {
		k.turn()
	}
	k.opened = false
	return k.machine.pods()
}

// Get returns the current figures.
func (k *kubeletSide) Get(context.Context, bool) (*statsapi.Summary, error) {
	if in(k.w.Blind, k.now()) {
		k.note().Blind = k.step["collections"] == "" || k.note().Blind
		return nil, errWorld
	}
	return k.summary(), nil
}

// GetCPUAndMemoryStats is not called.
func (k *kubeletSide) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return nil, errWorld
}

// DeleteAllUnusedContainers runs a container collection.
func (k *kubeletSide) DeleteAllUnusedContainers(context.Context) error { return k.collect(0, false) }

// DeleteUnusedImages runs an image collection.
func (k *kubeletSide) DeleteUnusedImages(context.Context) error { return k.collect(1, false) }

func (k *kubeletSide) kill(pod *corev1.Pod, _ bool, grace *int64, apply func(*corev1.PodStatus)) error {
	a := k.machine.kill(pod.Name, *grace, apply)
	timeout := killTimeout(*grace)
	if after, ok := k.restarting(); ok && after < min(a.takes, timeout) {
		time.Sleep(after)
		k.close()
		k.leave("restart")
	}
	time.Sleep(min(a.takes, timeout))
	if a.takes > timeout {
		return context.DeadlineExceeded
	}
	return a.err
}

// Event is not called.
func (k *kubeletSide) Event(machinery.Object, string, string, string) {}

// Eventf records an event of the node.
func (k *kubeletSide) Eventf(object machinery.Object, kind, reason, format string, args ...any) {
	k.set("event", eventText(object, kind, reason, fmt.Sprintf(format, args...)))
}

// AnnotatedEventf records an event of a pod.
func (k *kubeletSide) AnnotatedEventf(object machinery.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	name := object.(*corev1.Pod).Name
	k.set("kill "+name+"/event", eventText(object, kind, reason, fmt.Sprintf(format, args...)))
	k.set("kill "+name+"/annotations", annotationsText(annotations))
}

func eventText(object machinery.Object, kind, reason, message string) string {
	on := "node"
	if pod, ok := object.(*corev1.Pod); ok {
		on = "pod " + pod.Name
	}
	return fmt.Sprintf("%s %s %s %q", on, kind, reason, message)
}

// Init is part of logr.LogSink. The test reads the kubelet's evaluations from its log.
func (k *kubeletSide) Init(logr.RuntimeInfo) {}

// Enabled is part of logr.LogSink.
func (k *kubeletSide) Enabled(int) bool { return true }

// WithValues is part of logr.LogSink.
func (k *kubeletSide) WithValues(...any) logr.LogSink { return k }

// WithName is part of logr.LogSink.
func (k *kubeletSide) WithName(string) logr.LogSink { return k }

// Error is part of logr.LogSink.
func (k *kubeletSide) Error(error, string, ...any) {}

// Info is part of logr.LogSink.
func (k *kubeletSide) Info(_ int, message string, pairs ...any) {
	if k.step == nil {
		return
	}
	value := func(key string) any {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1]
			}
		}
		return nil
	}
	switch message {
	case "Eviction manager: threshold observed resource":
		s := eviction.Signal(value("signal").(kubeletapi.Signal))
		k.threshold(value("log").(string), s, value("quantity").(*resource.Quantity).Value(), value("available").(*resource.Quantity).Value())
	case "Eviction manager: pods ranked for eviction":
		k.set("ranking", strings.ReplaceAll(fmt.Sprint(value("pods")), "ns/", ""))
	case "Eviction manager: attempting to reclaim":
		k.note().Acts = k.pick()
	default: // not part of the comparison
	}
}

// threshold records that a threshold is in one of the kubelet's lists of thresholds.
func (k *kubeletSide) threshold(list string, s eviction.Signal, quantity, available int64) {
	t, ok := k.w.thresholdOf(s, quantity)
	require.True(k.t, ok, "%s<%d is not a threshold of this world", s, quantity)
	switch list {
	case "thresholds - ignoring grace period":
		k.met("met", t, quantity, available)
	case "thresholds - reclaim not satisfied":
		k.met("unresolved", t, quantity, available)
	case "thresholds - grace periods satisfied":
		k.met("due", t, quantity, available)
	case "thresholds - updated stats":
		k.met("fresh", t, quantity, available)
		k.fresh = append(k.fresh, t)
	default: // not part of the comparison
	}
}

// pick returns the threshold on which the kubelet acts. If the kubelet chooses it at random,
// the scenario ends.
func (k *kubeletSide) pick() threshold {
	all := k.w.withoutTwins(k.fresh)
	if memory := slices.DeleteFunc(slices.Clone(all), func(t threshold) bool { return !isMemory(t.Signal) }); len(memory) > 0 {
		all = memory
	}
	if len(all) == 1 && len(k.w.withoutTwins(k.fresh)) == 1 {
		return all[0]
	}
	k.set("picks", textOf(all))
	k.close()
	k.leave("done")
	return threshold{}
}
