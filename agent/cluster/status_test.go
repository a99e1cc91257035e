package cluster_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle"
)

func TestStatus_IsOnePatchWithoutGet(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(time.Minute)
		require.Equal(b.t, corev1.PodRunning, b.pod("web").Status.Phase)
		require.Empty(b.t, b.sent("get pods"))
		require.LessOrEqual(b.t, len(b.sent("patch pods/status default/web")), 3)
		b.forget()
		after(10 * time.Minute)
		require.Empty(b.t, b.sent("patch pods"), "nothing changes")
	})
}

// Other clients write conditions, labels and annotations while the agent reports statuses.
func TestStatus_KeepsWhatOtherClientsWrite(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := newPod("web", "demo/web:1")
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		b.put("pods", pod)
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, corev1.ConditionFalse, podCondition(b.pod("web"), corev1.PodReady))
		edit(b.api, "pods", "default", "web", func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
		})
		after(5 * time.Second)
		require.NoError(b.t, b.runtime.Kill("default/web/main", 1))
		after(20 * time.Second)
		p := b.pod("web")
		require.Equal(b.t, int32(1), p.Status.ContainerStatuses[0].RestartCount)
		require.Equal(b.t, corev1.ConditionTrue, podCondition(p, "example.com/gate"))
		require.Equal(b.t, corev1.ConditionTrue, podCondition(p, corev1.PodReady), "the gate counts")
		require.Equal(b.t, map[string]string{"a": "b"}, p.Labels)
		require.Equal(b.t, map[string]string{"c": "d"}, p.Annotations)
	})
}

// Another client overwrites the status that the agent has reported.
func TestStatus_IsCorrectedAfterAWriteOfAnotherClient(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		edit(b.api, "pods", "default", "web", func(p *corev1.Pod) { p.Status.Phase, p.Status.PodIP = corev1.PodPending, "" })
		after(5 * time.Second)
		require.Equal(b.t, corev1.PodRunning, b.pod("web").Status.Phase)
		require.NotEmpty(b.t, b.pod("web").Status.PodIP)
	})
}

// While the agent has no watch, it reports a status, and another client restores the previous one. The
// agent then receives the status that it received last.
func TestStatus_IsCorrectedIfThePreviousOneIsRestored(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(time.Minute)
		previous := b.pod("web").Status
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "pods" && (q.verb == "watch" || q.verb == "list") {
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		})
		b.endWatches(false)
		require.NoError(b.t, b.runtime.Kill("default/web/main", 1))
		after(time.Minute)
		require.EqualValues(b.t, 1, b.pod("web").Status.ContainerStatuses[0].RestartCount)
		edit(b.api, "pods", "default", "web", func(p *corev1.Pod) { p.Status = previous })
		b.failing(nil)
		after(2 * time.Minute)
		require.EqualValues(b.t, 1, b.pod("web").Status.ContainerStatuses[0].RestartCount)
	})
}

// The pod is deleted and created again while the API server cannot be reached.
func TestStatus_IsNotWrittenToAPodOfTheSameName(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("job", "demo/job:1"))
		edit(b.api, "pods", "default", "job", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		b.failing(func(_ *http.Request, q request) error {
			if q.verb == "patch" || q.verb == "watch" && q.resource == "pods" {
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		})
		b.start()
		after(5 * time.Second)
		b.remove("pods", "default", "job")
		b.put("pods", newPod("job", "demo/web:1"))
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "pods" && (q.verb == "watch" || q.verb == "list") {
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		})
		after(3 * time.Minute)
		require.Equal(b.t, corev1.PodPending, b.pod("job").Status.Phase, "the status of the old pod is not written to the new one")
		require.Empty(b.t, b.pod("job").Status.ContainerStatuses)
		b.failing(nil)
		after(time.Minute)
		require.Equal(b.t, corev1.PodRunning, b.pod("job").Status.Phase)
	})
}

// Statuses that could not be written are written when the API server is back: the newest one, and
// the deletion of a pod that has ended.
func TestStatus_CatchesUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("web", "demo/web:1"))
		b.put("pods", newPod("leaving", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		edit(b.api, "pods", "default", "leaving", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(1))
		})
		b.failing(func(_ *http.Request, q request) error {
			if q.verb == "patch" || q.verb == "delete" {
				return errors.New("etcd is down")
			}
			return nil
		})
		after(time.Minute)
		require.NoError(b.t, b.runtime.Kill("default/web/main", 3))
		after(time.Minute)
		require.Equal(b.t, int32(0), b.pod("web").Status.ContainerStatuses[0].RestartCount)
		_, exists := read[corev1.Pod](b.api, "pods", "default", "leaving")
		require.True(b.t, exists)

		b.failing(nil)
		after(time.Minute)
		require.Equal(b.t, int32(1), b.pod("web").Status.ContainerStatuses[0].RestartCount)
		_, exists = read[corev1.Pod](b.api, "pods", "default", "leaving")
		require.False(b.t, exists)
	})
}

// A pod that the node refuses fails, with the reason of the refusal.
func TestStatus_OfARefusedPod(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := newPod("web", "demo/web:1")
		pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		b.put("pods", pod)
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, corev1.PodFailed, b.pod("web").Status.Phase)
		require.Equal(b.t, "NodeAffinity", b.pod("web").Status.Reason)
	})
}

// podCondition returns the status of a condition of a pod.
func podCondition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// Another client changes the condition of a readiness gate of a pod that does not change otherwise.
func TestStatus_ReadyFollowsReadinessGates(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := newPod("web", "demo/web:1")
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		b.put("pods", pod)
		b.start()
		after(5 * time.Second)
		set := func(value corev1.ConditionStatus) {
			edit(b.api, "pods", "default", "web", func(p *corev1.Pod) {
				p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "example.com/gate" }),
					corev1.PodCondition{Type: "example.com/gate", Status: value})
			})
			after(2 * time.Second)
			require.Equal(b.t, value, podCondition(b.pod("web"), corev1.PodReady))
		}
		set(corev1.ConditionTrue)
		set(corev1.ConditionFalse)
		set(corev1.ConditionTrue)
	})
}

// A restarted agent refuses a pod whose containers still run. The phase Failed is published when the
// containers have stopped, so that no controller replaces the pod earlier.
func TestStatus_OfARefusedPodThatStillRuns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := newPod("web", "demo/stubborn:1")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
		b.put("pods", pod)
		b.start()
		after(10 * time.Second)
		require.Equal(b.t, []string{"web"}, b.running())
		b.stop()

		b.config = func(c *agent.Config) {
			c.Admission = []lifecycle.NamedHandler{{Name: "refuse", Handler: lifecycle.AdmitFunc(
				func(context.Context, lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
					return lifecycle.PodAdmitResult{Reason: "Refused", Message: "by the test"}
				})}}
		}
		b.start()
		after(30 * time.Second)
		require.Equal(b.t, []string{"web"}, b.running())
		require.Equal(b.t, []string{"web refused Failed"}, b.states())
		require.Equal(b.t, corev1.PodRunning, b.pod("web").Status.Phase)
		after(time.Minute)
		require.Empty(b.t, b.running())
		require.Equal(b.t, corev1.PodFailed, b.pod("web").Status.Phase)
		require.Equal(b.t, "Refused", b.pod("web").Status.Reason)
	})
}
