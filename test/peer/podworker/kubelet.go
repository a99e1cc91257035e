package podworker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // linkname

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown/systemd"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A login1 is systemd-logind on the D-Bus, with the methods that the kubelet's package uses.
type login1 interface {
	CurrentInhibitDelay() (time.Duration, error)
	InhibitShutdown() (systemd.InhibitLock, error)
	ReleaseInhibitLock(lock systemd.InhibitLock) error
	ReloadLogindConf() error
	MonitorShutdown(logger klog.Logger) (<-chan bool, error)
	OverrideInhibitDelay(inhibitDelayMax time.Duration) error
}

//go:linkname systemDbus k8s.io/kubernetes/pkg/kubelet/nodeshutdown.systemDbus
var systemDbus func() (login1, error)

// bus is the kubelet's logind.
type bus struct {
	r          *diary
	events     chan bool
	overridden bool
	locks      systemd.InhibitLock
	held       map[systemd.InhibitLock]bool
}

func (b *bus) CurrentInhibitDelay() (time.Duration, error) {
	if b.overridden {
		return b.r.world.Overridden, nil
	}
	return b.r.world.Allowed, nil
}

func (b *bus) InhibitShutdown() (systemd.InhibitLock, error) {
	b.locks++
	b.held[b.locks] = true
	b.r.take()
	return b.locks, nil
}

func (b *bus) ReleaseInhibitLock(lock systemd.InhibitLock) error {
	if b.held[lock] {
		delete(b.held, lock)
		b.r.release()
	}
	return nil
}

func (b *bus) ReloadLogindConf() error {
	b.overridden = true
	return nil
}

func (b *bus) MonitorShutdown(klog.Logger) (<-chan bool, error) { return b.events, nil }

func (b *bus) OverrideInhibitDelay(time.Duration) error { return nil }

// volumes is the kubelet's volume manager.
type volumes struct {
	volumemanager.VolumeManager

	r *diary
}

func (v volumes) WaitForAllPodsUnmount(ctx context.Context, pods []*corev1.Pod) error {
	return v.r.unmount(ctx, pods)
}

// events records the kubelet's events.
type events struct {
	record.EventRecorder

	r *diary
}

func (e events) Event(_ apiObject, kind, reason, message string) {
	e.r.fact("event", fmt.Sprintf("%s %s: %s", kind, reason, message))
}

func playKubelet(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	if w.Shutdowns == nil {
		return accepted(validate(t, w))
	}
	synctest.Test(t, func(t *testing.T) {
		r := &diary{world: w}
		b := &bus{r: r, events: make(chan bool), held: map[systemd.InhibitLock]bool{}}
		systemDbus = func() (login1, error) { return b, nil }
		m := nodeshutdown.NewManager(&nodeshutdown.Config{
			VolumeManager: volumes{r: r}, Recorder: events{r: r}, NodeRef: &corev1.ObjectReference{Kind: "Node", Name: "node"},
			GetPodsFunc: func() []*corev1.Pod { return r.now.pods() },
			KillPodFunc: func(pod *corev1.Pod, _ bool, grace *int64, status func(*corev1.PodStatus)) error {
				return r.kill(t.Context(), pod, time.Duration(*grace)*time.Second, status)
			},
			SyncNodeStatusFunc:               func(context.Context) {},
			ShutdownGracePeriodRequested:     w.Config.ShutdownGracePeriod,
			ShutdownGracePeriodCriticalPods:  w.Config.ShutdownGracePeriodCriticalPods,
			ShutdownGracePeriodByPodPriority: kubeletPeriods(w),
			StateDirectory:                   t.TempDir(),
		})
		tell := func(down bool) { go func() { b.events <- down }() }
		if err := m.Start(t.Context()); err != nil || m.ShutdownStatus() != nil || b.locks == 0 {
			tell = func(bool) {}
			b.events = nil
		}
		all = r.play(tell)
		if b.events != nil {
			// The manager tries to connect to the bus forever.
			systemDbus = func() (login1, error) {
				runtime.Goexit()
				return nil, errors.New("not reached")
			}
			close(b.events)
			<-time.After(time.Minute)
		}
	})
	return all
}

// validate runs the kubelet's validation of the options. All other options have their
// defaults.
func validate(t *testing.T, w *world) error {
	t.Helper()
	s, _, err := scheme.NewSchemeAndCodecs()
	require.NoError(t, err)
	defaults := &kubeletv1beta1.KubeletConfiguration{}
	s.Default(defaults)
	c := &kubeletconfig.KubeletConfiguration{}
	require.NoError(t, s.Convert(defaults, c, nil))
	c.FailCgroupV1 = false // independent of this machine
	require.NoError(t, validation.ValidateKubeletConfiguration(c, utilfeature.DefaultFeatureGate))
	c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration = w.Config.ShutdownGracePeriod, w.Config.ShutdownGracePeriodCriticalPods
	c.ShutdownGracePeriodByPodPriority = kubeletPeriods(w)
	return validation.ValidateKubeletConfiguration(c, utilfeature.DefaultFeatureGate)
}

func kubeletPeriods(w *world) (all []kubeletconfig.ShutdownGracePeriodByPodPriority) {
	for _, p := range w.Config.ShutdownGracePeriodByPodPriority {
		all = append(all, kubeletconfig.ShutdownGracePeriodByPodPriority{Priority: p.Priority, ShutdownGracePeriodSeconds: int64(p.GracePeriod / time.Second)})
	}
	return all
}
