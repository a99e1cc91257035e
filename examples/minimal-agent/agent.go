package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/eventlog"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
	"github.com/kubeparts/kubeparts/status"
)

// agent is the managers and what flows between them:
//
//	manifests -> source -> pods -> workers -> runner -> runtime
//	runtime -> pleg -> cache -> workers -> statuses -> console, /pods, files
//	cache -> probes -> statuses, workers
type agent struct {
	opts    options
	node    *node
	store   *state.FileStore // below the node's rootDir: what outlives the agent
	log     *slog.Logger
	console *console
	host    host
	upkeep

	supplies
	features features
	events   recorder

	manifestDir string
	source      *podsource.Directory
	url         *podsource.HTTP // nil without --manifest-url
	merge       *podmanager.Merge
	pods        *podmanager.Manager
	cache       *podcache.Cache
	pleg        *pleg.Generator
	runner      *podrunner.Runner
	workers     *podworker.Workers
	probes      *probes
	statuses    *status.Manager
	saved       *status.Saved // what an agent before this one said
	publish     *status.Publisher
	// admission says whether a pod may start, deadline whether its time is over.
	admission *lifecycle.Chain
	deadline  lifecycle.ActiveDeadline
	sweep     *loop.Loop // housekeeping
	removals  *removals
	ask       *loop.Loop // asking the runtime how it is
	saves     *loop.Loop // saving what delays restarts
	runtime   *lastError // what it last said
	state     nodeState
	passes    passes // how those of the collectors ended
	server    *server.Server
	answers   answers
	began     time.Time
	startup   startup

	// mu makes a change of the desired pods and a sweep exclude each other: a pod
	// that has just come back must not look like an orphan.
	mu       sync.Mutex
	ready    bool // every source has answered
	draining bool // the agent stops and takes its pods with it
	rejected map[types.UID]bool
	// awaitsSweep has the pods that the sweep starts. Until then a status may be that of
	// the pod's earlier life.
	awaitsSweep map[types.UID]bool
	cleared     map[types.UID]bool        // whose leftovers on disk were removed
	diskSeen    time.Time                 // when all folders of pods were looked at
	leaving     map[types.UID]*corev1.Pod // which no manifest asks for any more, and are not gone yet
}

// newAgent wires the managers. Nothing runs yet.
func newAgent(ctx context.Context, o options, n *node, c *console, log *slog.Logger) (*agent, error) {
	a := &agent{
		opts: o, node: n, store: state.Files(n.rootDir), log: log, console: c,
		host:        lookAtHost(),
		cache:       podcache.New(),
		pods:        podmanager.New(),
		sweep:       loop.New(clock.RealClock{}),
		ask:         loop.New(clock.RealClock{}),
		saves:       loop.New(clock.RealClock{}),
		runtime:     newLastError(),
		rejected:    map[types.UID]bool{},
		awaitsSweep: map[types.UID]bool{},
		cleared:     map[types.UID]bool{},
		leaving:     map[types.UID]*corev1.Pod{},
		supplies:    supplies{objects: podsource.NewStore(), exits: newExits()},
		events:      recorder{log: log, console: c, ring: eventlog.New(eventlog.Config{})},
		began:       time.Now(),
	}
	a.removals = newRemovals(a.sweep.Trigger, log)
	return a, errors.Join(a.newSource(), a.newPLEG(), a.newProbes(), a.newUpkeep(ctx), a.newRunner(ctx), a.newWorkers(), a.newStatuses(ctx), a.newAdmission(), a.newServer())
}

// run serves until ctx is done or a part of the agent can't go on, and returns
// when every part has ended.
func (a *agent) run(ctx context.Context) error {
	listener, err := server.Listen(ctx, a.opts.listen, a.opts.access)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	a.console.say("listening on %s", a.opts.access.URL(listener.Addr()))

	// The parts go on while the agent takes its pods down.
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var parts sync.WaitGroup
	urlRun := func(context.Context) error { return nil }
	if a.url != nil {
		urlRun = func(ctx context.Context) error { return a.url.Run(ctx, a.merge.Source(podspec.SourceHTTP)) }
	}
	start := func(name string, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(working); err != nil {
				stop(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	// First, because it asks nothing: /livez answers also while the runtime does not.
	start("http", func(ctx context.Context) error { return a.server.Run(ctx, listener) })
	a.lookAround(ctx)
	for name, part := range map[string]func(context.Context) error{
		"url":     urlRun,
		"source":  func(ctx context.Context) error { return a.source.Run(ctx, a.merge.Source(podspec.SourceFile)) },
		"pleg":    a.pleg.Run,
		"workers": a.workers.Run,
		"probes":  a.runProbes,
		"publish": a.publish.Run,
		"sweep":   a.runSweep,
		"objects": a.runObjects,
		"backoff": func(ctx context.Context) error { return a.saves.Run(ctx, a.saveBackoff) },
		"runtime": func(ctx context.Context) error { return a.ask.Run(ctx, a.askRuntime) },

		"statistics": a.runStats,
		"eviction":   a.eviction.Run,
		"images":     a.imageGC.Run,
		"containers": a.containerGC.Run,
		"logs":       a.logs.Run,
		"oom":        a.runOOM,
	} {
		start(name, part)
	}
	select {
	case <-ctx.Done():
	case <-working.Done():
	}
	if working.Err() == nil {
		if err := a.farewell(working); err != nil {
			stop(err)
		}
	}
	stop(nil)
	parts.Wait()
	a.removals.wait() // eviction and sweep, which start them, have ended
	a.flush(working)
	a.saveBackoff(working)
	if cause := context.Cause(working); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}
