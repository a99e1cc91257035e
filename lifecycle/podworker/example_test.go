package podworker_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// printer is a Syncer that prints its actions.
type printer struct{ synced chan struct{} }

func (p printer) SyncPod(_ context.Context, req podworker.SyncRequest) (bool, error) {
	fmt.Println("sync", req.Pod.Name, "because of", req.Type)
	close(p.synced)
	return false, nil
}

func (printer) SyncTerminatingPod(_ context.Context, req podworker.SyncRequest) error {
	fmt.Println("stop", req.Pod.Name, "within", req.Grace)
	return nil
}

func (printer) SyncTerminatingRuntimePod(_ context.Context, req podworker.SyncRequest) error {
	fmt.Println("stop", req.Status.UID, "of which there is no spec")
	return nil
}

func (printer) SyncTerminatedPod(_ context.Context, req podworker.SyncRequest) error {
	fmt.Println("clean up after", req.Pod.Name)
	return nil
}

func Example() {
	cache, syncer := podcache.New(), printer{synced: make(chan struct{})}
	finished := make(chan struct{})
	workers, err := podworker.New(podworker.Config{
		Syncer: syncer,
		Cache:  cache,
		Observer: podworker.Observer{PhaseChanged: func(_ types.UID, _ *corev1.Pod, phase podworker.Phase) {
			if phase == podworker.Finished {
				close(finished)
			}
		}},
		// Replaces the relist that a real agent would request.
		AfterSync: func(types.UID) { cache.UpdateTime(time.Now()) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- workers.Run(ctx) }()

	cache.UpdateTime(time.Now()) // the first relist: the runtime is empty
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Name: "web", Namespace: "shop"}}
	workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	<-syncer.synced
	cache.UpdateTime(time.Now().Add(time.Second)) // the next relist
	grace := 5 * time.Second
	err = workers.KillPod(ctx, pod, podworker.KillOptions{Grace: &grace})
	<-finished
	fmt.Println("killed:", err == nil)
	stop()
	fmt.Println("stopped:", <-done == nil)
	// Output:
	// sync web because of create
	// stop web within 5s
	// clean up after web
	// killed: true
	// stopped: true
}

func ExamplePlanShutdown() {
	config := podworker.ShutdownConfig{
		ShutdownGracePeriod:             30 * time.Second,
		ShutdownGracePeriodCriticalPods: 10 * time.Second,
	}
	critical, short := podworker.CriticalPriority, int64(5)
	pods := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "dns"}, Spec: corev1.PodSpec{Priority: &critical}},
		{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "batch"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &short}},
	}
	for _, stage := range podworker.PlanShutdown(pods, config.GracePeriods(), 0) {
		fmt.Println("priority", stage.Priority, "within", stage.Period)
		for _, p := range stage.Pods {
			fmt.Println("  end", p.Pod.Name, "within", p.Grace)
		}
	}
	// Output:
	// priority 0 within 20s
	//   end web within 20s
	//   end batch within 5s
	// priority 2000000000 within 10s
	//   end dns within 10s
}
