package nodeloop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/internal/loop"
)

// errRunsOnce is returned when [Loop.Run] is called a second time.
var errRunsOnce = errors.New("the node loop can run only once")

// Loop manages a node and computes its status. Create it with [New]. All methods are safe for
// concurrent use. The results of methods are shared and must not be modified.
type Loop struct {
	cfg       Config
	reference *corev1.ObjectReference // of the node, for events
	ran       atomic.Bool

	machine  machine
	runtime  runtimeState
	node     nodeState
	pressure pressure
	parts    parts

	// runtimeLoop gets the runtime's status, and nodeLoop computes the Node object.
	runtimeLoop, nodeLoop *loop.Loop

	eviction    *eviction.Manager
	puller      *Puller
	imageGC     *imagegc.Manager
	containerGC *containergc.Manager
	logs        *logrotate.Rotator // nil without Config.PodLogs
	oom         *oomWatch          // nil if the host has no sources of OOM kills

	summary    *shared[*statsapi.Summary]
	evaluation *shared[evaluation]
	plan       *shared[Plan]
}

// New returns a Loop. It starts nothing. The error reports the problems with c.
func New(c Config) (*Loop, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	l := &Loop{
		cfg: c,
		reference: &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Node", Name: c.NodeName, UID: types.UID(c.NodeName),
		},
		runtimeLoop: loop.New(c.Clock),
		nodeLoop:    loop.New(c.Clock),
		machine:     machine{facts: c.Host.Facts, clock: c.Clock},
		puller:      newPuller(c.Runtime, c.State, c.Logger),
	}
	l.parts.init(c.Changed)
	l.node.init(c.NodeName, c.Clock.Now())
	if err := errors.Join(
		wrap("image garbage collection", l.newImageGC()),
		wrap("container garbage collection", l.newContainerGC()),
		wrap("log rotation", l.newLogRotation()),
		wrap("eviction", l.newEviction()),
		wrap("OOM watch", l.newOOMWatch()),
	); err != nil {
		return nil, err
	}
	l.summary = newShared(c.Clock, l.measureSummary)
	l.evaluation = newShared(c.Clock, l.evaluate)
	l.plan = newShared(c.Clock, l.makePlan)
	return l, nil
}

// Run runs the loop until ctx is done and then returns nil. If a part fails before ctx is done,
// Run stops all parts and returns an error that names the part. Run may be called only once.
//
// The parts are host, runtime, node, eviction, images, containers, logs and oom. The host starts
// first and stops last, because the other parts use it. The other parts start and stop together.
// When ctx is done, Run cancels the running calls of Pods.Evict, waits until they return, and
// saves the position in the kernel's log.
func (l *Loop) Run(ctx context.Context) error {
	if !l.ran.CompareAndSwap(false, true) {
		return errRunsOnce
	}
	if l.cfg.Events != nil {
		l.cfg.Events.Eventf(l.reference, corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	}
	l.puller.load(ctx)
	l.machine.begin(ctx)
	working, stop := context.WithCancel(ctx)
	defer stop()
	hostCtx, stopHost := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHost()

	var failed failures
	run := func(ctx context.Context, p part) {
		if err := p.run(ctx); err != nil {
			failed.add(fmt.Errorf("%s: %w", p.name, err))
			stop()
		}
	}
	var host, others sync.WaitGroup
	if l.cfg.Host.Run != nil {
		host.Go(func() { run(hostCtx, part{partHost, l.cfg.Host.Run}) })
	}
	for _, p := range l.otherParts() {
		others.Go(func() { run(working, p) })
	}
	others.Wait()
	stopHost()
	host.Wait()
	return failed.joined()
}

// part is one of the concurrent activities of Run.
type part struct {
	name string
	run  func(context.Context) error
}

// failures collects errors of several goroutines.
type failures struct {
	mu   sync.Mutex
	errs []error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *failures) joined() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// otherParts returns all parts except the host.
func (l *Loop) otherParts() []part {
	all := []part{
		{partRuntime, func(ctx context.Context) error { return l.runtimeLoop.Run(ctx, l.checkRuntime) }},
		{"node", func(ctx context.Context) error { return l.nodeLoop.Run(ctx, l.updateNodeOnTrigger) }},
		{partEviction, l.eviction.Run},
		{partImages, l.imageGC.Run},
		{partContainers, l.containerGC.Run},
	}
	if l.logs != nil {
		all = append(all, part{partLogs, l.logs.Run})
	}
	if l.oom != nil {
		all = append(all, part{partOOM, l.runOOM})
	}
	return all
}

// updateNodeOnTrigger computes the Node object. It returns a long period, because checkRuntime
// also computes the object, every few seconds.
func (l *Loop) updateNodeOnTrigger(ctx context.Context) time.Duration {
	l.updateNode(ctx)
	return time.Hour
}
