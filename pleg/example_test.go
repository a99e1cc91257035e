package pleg_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
)

// A watcher that reads slowly receives merged events, but at least one for every pod.
func ExampleGenerator_Watch() {
	runtime := newNode() // an agent uses a CRI client, which also implements Events
	generator, err := pleg.New(pleg.Config{
		Runtime: runtime,
		Cache:   podcache.New(),
		Handler: func(context.Context, pleg.Event) {}, // the watcher is used instead
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := generator.Watch(ctx)
	for _, id := range []string{"web", "proxy", "log"} {
		runtime.container("1234", id, runs)
	}
	runtime.container("5678", "db", runs)
	_, _ = generator.Relist(ctx)
	seen := map[string]bool{}
	for len(seen) < 2 {
		e := <-events
		seen[string(e.PodUID)] = true
	}
	fmt.Println("pods:", len(seen), "period:", generator.Stats().Period)
	// Output: pods: 2 period: 1s
}

// A handler records the pods with events; the cache contains their status.
func Example() {
	runtime := newNode() // an agent uses a CRI client
	runtime.sandbox("1234", "sandbox", ready)
	runtime.container("1234", "web", runs)

	cache := podcache.New()
	generator, err := pleg.New(pleg.Config{
		Runtime: runtime,
		Cache:   cache,
		Handler: func(_ context.Context, e pleg.Event) { fmt.Println(e.PodUID, e.Type, e.ContainerID) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background() // an agent calls generator.Run(ctx) instead
	_, _ = generator.Relist(ctx)
	status, _ := cache.Get("1234")
	fmt.Println("running:", status.Running())

	runtime.container("1234", "web", exited)
	runtime.fail("web", errors.New("shim does not answer"))
	_, _ = generator.Relist(ctx)
	status, err = cache.Get("1234")
	fmt.Println("stale:", status.Stale, err)
	// Output:
	// 1234 ContainerStarted sandbox
	// 1234 ContainerStarted web
	// running: true
	// 1234 ContainerDied web
	// stale: true shim does not answer
}
