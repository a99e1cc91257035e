package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent"
)

func TestEvents_NameTheContainer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, 1, b.recorded("Started"))
		events, err := b.client().CoreV1().Events("default").List(b.t.Context(), metav1.ListOptions{})
		require.NoError(b.t, err)
		for _, e := range events.Items {
			if e.Reason != "Created" && e.Reason != "Started" {
				continue
			}
			require.Equal(b.t, b.pod("web").UID, e.InvolvedObject.UID)
			require.Equal(b.t, corev1.EventSource{Component: "kubelet", Host: nodeName}, e.Source)
			require.Equal(b.t, "spec.containers{main}", e.InvolvedObject.FieldPath, e.Reason)
		}
	})
}

// The recorder counts equal events as one event, and drops events above its rate limit.
func TestEvents_AreMergedAndLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		_, ac := b.join()
		b.start()
		ref := &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "1"}
		ac.Events.AnnotatedEventf(ref, nil, corev1.EventTypeNormal, "Lost", "this cluster never runs")
		events := b.joined.Events
		for range 100 {
			events.AnnotatedEventf(ref, map[string]string{"a": "b"}, corev1.EventTypeWarning, "Unhealthy", "probe %d failed", 1)
		}
		after(time.Second)
		require.Equal(b.t, 1, b.recorded("Unhealthy"))
		require.Zero(b.t, b.recorded("Lost"))
		list, err := b.client().CoreV1().Events("default").List(b.t.Context(), metav1.ListOptions{})
		require.NoError(b.t, err)
		for _, e := range list.Items {
			if e.Reason == "Unhealthy" {
				require.Equal(b.t, int32(25), e.Count, "the burst of the recorder of client-go")
				require.Equal(b.t, "b", e.Annotations["a"])
			}
		}
	})
}

// Events that are recorded before Run and while the API server is away are sent later.
func TestEvents_AreSentLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.setAway(true)
		b.early = func(e agent.EventRecorder) {
			e.AnnotatedEventf(&corev1.ObjectReference{Kind: "Node", Name: nodeName, UID: nodeName}, nil, corev1.EventTypeNormal, "Early", "before Run")
		}
		b.start()
		after(30 * time.Second)
		require.Zero(b.t, b.recorded("Early"))
		b.setAway(false)
		after(30 * time.Second)
		require.Equal(b.t, 1, b.recorded("Early"))
	})
}

// kubectl describe shows the events that have the name of the node as UID.
func TestEvents_AboutTheNodeAreShownByKubectlDescribe(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		after(time.Minute)
		api := b.client().CoreV1().Events("")
		selector := api.GetFieldSelector(new(nodeName), new(""), new("Node"), new(nodeName))
		list, err := api.List(b.t.Context(), metav1.ListOptions{FieldSelector: selector.String()})
		require.NoError(b.t, err)
		var seen []string
		for _, e := range list.Items {
			require.Equal(b.t, "v1", e.InvolvedObject.APIVersion, e.Reason)
			require.Equal(b.t, corev1.EventSource{Component: "kubelet", Host: nodeName}, e.Source)
			seen = append(seen, e.Type+" "+e.Reason+": "+e.Message)
		}
		require.ElementsMatch(b.t, []string{
			"Normal Starting: Starting kubelet.",
			"Normal NodeHasSufficientMemory: Node node1 status is now: NodeHasSufficientMemory",
			"Normal NodeHasNoDiskPressure: Node node1 status is now: NodeHasNoDiskPressure",
			"Normal NodeHasSufficientPID: Node node1 status is now: NodeHasSufficientPID",
		}, seen, "a node that is ready when it is created has no event NodeReady")
	})
}
