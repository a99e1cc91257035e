// Parts-by-hand is a node agent made of single managers, without package agent. It runs the pods of
// a folder of manifests, restarts failed containers, removes exited containers, and prints changes
// of statuses. The runtime is simulated in memory. docs/writing-an-agent.md explains the code.
//
//	go run ./examples/parts-by-hand DIR
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
	"github.com/kubeparts/kubeparts/status"
)

// agent has the managers. Data flows between them as follows:
//
//	manifests -> pods -> workers -> runner -> runtime
//	runtime -> pleg -> cache -> workers, statuses
type agent struct {
	source   *podsource.Directory
	pods     *podmanager.Manager
	workers  *podworker.Workers
	runner   *podrunner.Runner
	cache    *podcache.Cache
	pleg     *pleg.Generator
	statuses *status.Manager
	dead     *containergc.Manager

	mu           sync.Mutex // guards sourcesReady, and serialises setPods and housekeeping
	sourcesReady bool       // the manifests were read
}

// runtime has the methods that the managers of the agent call. Any CRI client implements it.
type runtime interface {
	pleg.Runtime
	pleg.EventSource
	images.ImageService
	podrunner.Sandboxes
	podrunner.Containers
	containergc.Runtime
	containergc.Remover
}

func newAgent(ctx context.Context, rt runtime, manifests, logs string, out io.Writer) (*agent, error) {
	a := &agent{pods: podmanager.New(), cache: podcache.New()}
	pulls, err := images.New(images.Config{Images: rt})
	var errs [6]error
	a.source, errs[0] = podsource.NewDirectory(podsource.DirectoryConfig{Path: manifests, NodeName: "node1"})
	a.pleg, errs[1] = pleg.New(pleg.Config{Runtime: rt, Events: rt, Cache: a.cache, Handler: a.podChanged})
	a.runner, errs[2] = podrunner.New(podrunner.Config{
		Sandboxes: rt, Containers: rt, Images: pulls, Refresh: a.refresh, LogRoot: logs, Agent: "parts-by-hand",
	})
	a.workers, errs[3] = podworker.New(podworker.Config{
		Syncer: a.runner, Cache: a.cache, AfterSync: a.pleg.RequestRelist,
		Observer: podworker.Observer{SyncEnded: func(info podworker.SyncInfo) { a.updateStatus(ctx, info) }},
	})
	a.statuses, errs[4] = status.New(status.Config{Observer: status.Observer{
		StatusChanged: func(c status.Change) { fmt.Fprintln(out, c.Pod.Name, line(c.New)) },
	}})
	a.dead, errs[5] = containergc.New(containergc.Config{
		Runtime: rt, Remover: rt, Pods: a.workers, PodLogs: logs,
		SourcesReady: func() bool { return a.pleg.Healthy() == nil },
	})
	return a, errors.Join(append(errs[:], err)...)
}

// run runs the agent until ctx is done. It does not stop the pods. If the runtime outlives the
// agent, the next agent adopts them.
func (a *agent) run(ctx context.Context) error {
	var parts sync.WaitGroup
	var errs [5]error
	source := func(ctx context.Context) error { return a.source.Run(ctx, a.setPods) }
	for i, part := range []func(context.Context) error{source, a.runHousekeeping, a.pleg.Run, a.workers.Run, a.dead.Run} {
		parts.Go(func() { errs[i] = part(ctx) })
	}
	parts.Wait()
	return errors.Join(errs[:]...)
}

// setPods sets the desired pods. It terminates pods that are not desired any more, and starts
// workers for new pods. If an earlier pod with the same UID is still terminating, its worker
// records the request to create the pod.
func (a *agent) setPods(_ context.Context, pods []*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	added := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		_, known := a.pods.GetPodByUID(pod.UID)
		return known
	})
	a.pods.SetPods(pods)
	a.sourcesReady = true
	a.workers.SyncKnownPods(a.pods.GetPods)
	for _, pod := range added {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	}
}

// housekeeping deletes the workers of removed pods that have ended, and starts workers for desired
// pods without a worker.
func (a *agent) housekeeping() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.sourcesReady {
		return
	}
	known := a.workers.SyncKnownPods(a.pods.GetPods)
	for _, pod := range a.pods.GetPods() {
		if _, ok := known[pod.UID]; !ok {
			a.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
		}
	}
}

// runHousekeeping calls housekeeping every second until ctx is done, because pods end between two
// changes of the manifests.
func (a *agent) runHousekeeping(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			a.housekeeping()
		}
	}
}

// podChanged wakes the worker of a pod that has changed in the runtime.
func (a *agent) podChanged(_ context.Context, e pleg.Event) {
	if pod, ok := a.pods.GetPodByUID(e.PodUID); ok {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
	}
}

// refresh relists a pod and returns its new state.
func (a *agent) refresh(ctx context.Context, uid types.UID) (*podcache.Status, error) {
	now := time.Now()
	if err := a.pleg.RelistPod(ctx, uid); err != nil {
		return nil, err
	}
	return a.cache.GetNewerThan(ctx, uid, now)
}

// updateStatus computes a pod's status after each sync.
func (a *agent) updateStatus(ctx context.Context, info podworker.SyncInfo) {
	if info.Pod == nil {
		return
	}
	observed, _ := a.cache.Get(info.Pod.UID)
	previous, _ := a.statuses.GetPodStatus(info.Pod.UID)
	a.statuses.SetPodStatus(info.Pod, status.Generate(status.Input{
		Pod: info.Pod, Runtime: observed, Previous: previous, Waiting: a.runner.Waiting(info.Pod.UID), Enforced: a.runner.Enforced(ctx, info.Pod.UID),
		Terminal: info.Phase == podworker.Terminated,
	}))
}

// line returns a status as one line of text.
func line(s corev1.PodStatus) (words string) {
	words = string(s.Phase)
	for _, c := range s.ContainerStatuses {
		words += fmt.Sprintf(" %s: restarts=%d", c.Name, c.RestartCount)
		switch {
		case c.State.Waiting != nil:
			words += " " + c.State.Waiting.Reason
		case c.State.Terminated != nil:
			words += " " + c.State.Terminated.Reason
		}
	}
	return words
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string, out io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("usage: parts-by-hand DIR")
	}
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	if err != nil {
		return err
	}
	logs, err := os.MkdirTemp("", "logs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(logs)) }()
	a, err := newAgent(ctx, node, args[0], logs, out)
	if err != nil {
		return err
	}
	return a.run(ctx)
}
