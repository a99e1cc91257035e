package provider_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	provider "github.com/kubeparts/kubeparts/examples/virtual-kubelet-provider"
)

// TestProvider_RunsUnderVirtualKubelet runs the provider with virtual-kubelet's own controller and an API
// server in memory.
func TestProvider_RunsUnderVirtualKubelet(t *testing.T) {
	toy := &provider.Toy{Programs: map[string]provider.Program{"crash": {Main: crash(1)}}}
	p, err := provider.New(toy)
	require.NoError(t, err)
	toy.Changed = p.Changed
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()

	client := fake.NewClientset()
	shared := informers.NewSharedInformerFactory(client, 0)
	pods := shared.Core().V1().Pods()
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient:         client.CoreV1(),
		PodInformer:       pods,
		EventRecorder:     &record.FakeRecorder{},
		Provider:          p,
		ConfigMapInformer: shared.Core().V1().ConfigMaps(),
		SecretInformer:    shared.Core().V1().Secrets(),
		ServiceInformer:   shared.Core().V1().Services(),
	})
	require.NoError(t, err)
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	ended := make(chan error, 2)
	go func() { ended <- p.Run(ctx) }()
	go func() { ended <- controller.Run(ctx, 2) }()

	api := client.CoreV1().Pods("default")
	watch, err := api.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	until := func(what string) {
		t.Helper()
		for {
			select {
			case e := <-watch.ResultChan():
				if pod, ok := e.Object.(*corev1.Pod); ok && words(pod) == what {
					return
				}
			case <-ctx.Done():
				require.Fail(t, "missing in the API server: "+what)
			}
		}
	}
	pod := newPod("web", "crash")
	_, err = api.Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	until("Running ready=1/1 restarts=0")
	until("Running ready=1/1 restarts=1")
	until("Running ready=0/1 restarts=1 CrashLoopBackOff")

	require.NoError(t, api.Delete(ctx, "web", metav1.DeleteOptions{}))
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for len(toy.Containers(pod.UID)) > 0 {
		select {
		case <-poll.C:
		case <-ctx.Done():
			require.Fail(t, "the containers of the deleted pod are still running")
		}
	}
	watch.Stop()
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	shared.Shutdown()
	toy.Close()
}
