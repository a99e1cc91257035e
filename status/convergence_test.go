package status_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

// TestConvergence changes pods at random while every third call fails in some way and other
// writers write too. All stored statuses must follow the rules, and after the last change the
// API server must have the status that the node reports. A failure contains its seed.
func TestConvergence(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { converge(t, seed) })
	}
}

func converge(t *testing.T, seed uint64) {
	t.Helper()
	r, faults := rand.New(rand.NewPCG(seed, 4)), rand.New(rand.NewPCG(seed, 5))
	a := newAPI()
	a.latency = 5 * time.Millisecond
	quiet := false
	fault := func(ctx context.Context, verb, name string) error {
		a.mu.Lock()
		kind := faults.IntN(18)
		if quiet {
			kind = 17
		}
		a.mu.Unlock()
		switch {
		case kind > 5:
			return nil
		case kind == 0:
			return apierrors.NewTooManyRequests("busy", 1)
		case kind == 1:
			return apierrors.NewInternalError(errors.New("x"))
		case kind == 2:
			return errors.New("connection reset by peer")
		case kind == 3:
			return apierrors.NewConflict(podResource, name, nil)
		case kind == 4:
			<-ctx.Done()
			return ctx.Err()
		case verb == "patch": // the next GET finds the pod
			return apierrors.NewNotFound(podResource, name)
		default:
			return nil
		}
	}
	a.before = fault
	a.after = func(ctx context.Context, verb, name string) error {
		err := fault(ctx, verb, name)
		if verb == "get" || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) {
			return nil // a real API server does not return these errors after it has applied a request
		}
		return err
	}
	a.wrote = func(old, next *corev1.Pod) { checkStored(t, seed, old, next) }
	n := newNode(t, a, func(c *status.PublisherConfig) { c.Timeout, c.MaxBackoff = time.Second, 4*time.Second })
	n.start(t)

	pods := numbered(10)
	for i := range pods {
		pods[i] = a.put(pods[i])
	}
	for step := range 300 {
		time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		pod := pods[r.IntN(len(pods))]
		switch r.IntN(12) {
		case 0:
			a.edit(pod.Name, func(pod *corev1.Pod) {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
					Type: corev1.PodConditionType(fmt.Sprint("x/", step)), Status: "True",
				})
			})
		case 1:
			n.sink.RecordObject(pod.UID, a.pod(pod.Name))
			n.Trigger(pod.UID)
		case 2:
			n.TerminatePod(pod)
		default:
			s := simple([]corev1.PodPhase{"Pending", "Running", "Running", "Running"}[r.IntN(4)], []corev1.ConditionStatus{"True", "False"}[r.IntN(2)])
			s.Message = fmt.Sprint(step)
			n.SetPodStatus(pod, s)
		}
	}
	a.mu.Lock()
	quiet = true
	a.mu.Unlock()
	require.NoError(t, n.Flush(t.Context()), "seed %d", seed)
	for _, pod := range pods {
		said, ok := n.GetPodStatus(pod.UID)
		shown := a.pod(pod.Name).Status
		require.True(t, !ok || status.Equal(pod, &said, &shown), "seed %d: %s\n%s\n%s", seed, pod.Name, jsonOf(t, &said), jsonOf(t, &shown))
	}
	require.Less(t, len(a.asked()), 3*300, "seed %d: too many calls", seed)
}

func checkStored(t *testing.T, seed uint64, old, next *corev1.Pod) {
	t.Helper()
	if podspec.IsTerminal(old.Status.Phase) && next.Status.Phase != old.Status.Phase {
		t.Errorf("seed %d: %s changes from %s to %s", seed, next.Name, old.Status.Phase, next.Status.Phase)
	}
	for _, was := range old.Status.Conditions {
		now := status.Condition(next.Status.Conditions, was.Type)
		switch {
		case was.Type == corev1.ContainersReady: // Merge adds this condition when the pod ends, and no status in this test contains it
		case was.Type != corev1.PodReady:
			if now == nil || *now != was {
				t.Errorf("seed %d: condition %s of %s was lost", seed, was.Type, next.Name)
			}
		case now == nil || now.LastTransitionTime.Before(&was.LastTransitionTime):
			t.Errorf("seed %d: the readiness of %s went back", seed, next.Name)
		}
	}
}
