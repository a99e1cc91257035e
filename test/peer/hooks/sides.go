package hooks

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubelet "k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func playKubelet(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newDiary(w)
		ctx, cancel := w.until(t.Context())
		defer cancel()
		message, err := kubelet.NewHandlerRunner(r, commands{r: r}, pods{w: w}, events{r: r}).
			Run(ctx, kubecontainer.ContainerID{ID: "id"}, w.Pod, w.Container, w.Handler)
		all = r.over(err != nil, message)
	})
	return all
}

type commands struct{ r *diary }

func (c commands) RunInContainer(_ context.Context, id kubecontainer.ContainerID, command []string, _ time.Duration) ([]byte, error) {
	c.r.add("exec", id.ID)
	return c.r.exec(command)
}

type pods struct{ w *world }

func (p pods) GetPod(context.Context, types.UID) (*kubecontainer.Pod, error) {
	return &kubecontainer.Pod{}, nil
}

func (p pods) GetPodStatus(context.Context, *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	return &kubecontainer.PodStatus{IPs: p.w.IPs}, nil
}

type events struct {
	record.EventRecorder

	r *diary
}

func (e events) Event(_ runtime.Object, kind, reason, message string) {
	e.r.add("event", fmt.Sprintf("%s %s: %s", kind, reason, message))
}

func playOurs(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newDiary(w)
		ctx, cancel := w.until(t.Context())
		defer cancel()
		runner, err := lifecycle.NewHookRunner(lifecycle.HookConfig{Exec: ourCommands{r: r}, HTTP: r, Events: ourEvents{r: r}, UserAgent: "kube-lifecycle/."})
		if err != nil {
			t.Fatal(err)
		}
		w.Container.Lifecycle = &corev1.Lifecycle{PreStop: w.Handler}
		ip := ""
		if len(w.IPs) > 0 {
			ip = w.IPs[0]
		}
		result := runner.Run(ctx, lifecycle.Hook{
			Kind: lifecycle.PreStop, Pod: w.Pod, Container: w.Container, ContainerID: "id", PodIP: ip,
			Deadline: lifecycle.NewDeadline(nil, time.Now().Add(time.Hour)),
		})
		all = r.over(result.Err != nil, result.Message)
	})
	return all
}

type ourCommands struct{ r *diary }

func (c ourCommands) ExecSync(_ context.Context, id string, command []string, _ time.Duration) (stdout, stderr []byte, err error) {
	c.r.add("exec", id)
	stdout, err = c.r.exec(command)
	return stdout, nil, err
}

type ourEvents struct{ r *diary }

// Eventf records the runner's events, except the event about a failure: in the kubelet, the
// caller of the runner records that event.
func (e ourEvents) Eventf(_ runtime.Object, kind, reason, format string, args ...any) {
	if reason != lifecycle.FailedPreStopHook {
		e.r.add("event", fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(format, args...)))
	}
}
