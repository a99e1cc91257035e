package eventlog_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
)

// A reader gets the events since its last call. A repeated event is counted.
func Example() {
	log := eventlog.New(eventlog.Config{})
	web := &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}
	read := func(after uint64) uint64 {
		events, next, complete := log.After(after)
		for _, e := range events {
			fmt.Printf("%d. %s %s: %s (%d)\n", e.Number, e.Name, e.Reason, e.Message, e.Count)
		}
		fmt.Println("complete:", complete)
		return next
	}
	log.AnnotatedEventf(web, nil, "Warning", "BackOff", "container %s has failed", "server")
	log.AnnotatedEventf(web, nil, "Normal", "Pulled", "image pulled")
	next := read(0)
	log.AnnotatedEventf(web, nil, "Warning", "BackOff", "container %s has failed", "server")
	<-log.Changed(next)
	read(next)
	// Output:
	// 1. web BackOff: container server has failed (1)
	// 2. web Pulled: image pulled (1)
	// complete: true
	// 3. web BackOff: container server has failed (2)
	// complete: true
}
