// Take-one uses a single manager, the prober. It probes a server at port 8080 with an HTTP
// readiness probe that has a period and a failure threshold, and prints each change of the
// result.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/prober"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := watch(ctx, "127.0.0.1", 8080, func(c prober.Change) { fmt.Println(c.Container, c.Kind, c.Result) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// watch probes a server and calls report for each change of the result, until ctx is done.
func watch(ctx context.Context, host string, port int, report func(prober.Change)) error {
	probe := &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 3}
	probe.HTTPGet = &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(port)}
	pod := &corev1.Pod{}
	pod.UID = "1"
	pod.Spec.Containers = []corev1.Container{{Name: "server", ReadinessProbe: probe}}

	probes, err := prober.New(prober.Config{
		Lookup: func(types.UID, string) (prober.Target, bool) {
			return prober.Target{ID: "server-1", State: prober.Running, PodIP: host}, true
		},
	})
	if err != nil {
		return err
	}
	probes.AddPod(pod)
	changes := probes.Results(ctx)
	done := make(chan error, 1)
	go func() { done <- probes.Run(ctx) }()
	for c := range changes {
		report(c)
	}
	return <-done
}
