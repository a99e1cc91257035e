package podrunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/podlock"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// Runner carries out the plans of [Plan] on a runtime. Its methods may be
// called concurrently for different pods. For the same pod, the caller must run
// one sync at a time, as podworker does. [Runner.RemovePod] may be called
// during a pod's last sync.
type Runner struct {
	cfg   Config
	slots slots
	clean podlock.Locks // held while a pod is cleaned up

	mu           sync.Mutex
	waiting      map[types.UID]map[string]corev1.ContainerStateWaiting
	enforcements map[types.UID]enforcement
	preStopped   map[types.UID]map[string]bool   // ids of containers whose preStop hook has ended
	terminations map[types.UID]*terminationState // of terminating pods; with none set, of pods without a stored termination record
	restarting   map[types.UID]bool              // Actions.Restarting of the last plan
	injections   map[types.UID]injections
	replacements map[types.UID]string        // IDs of the sandboxes that restarts replace; "": no restart was requested
	mountWaits   map[types.UID]time.Duration // the last delay before a retry, for pods whose volumes can't be mounted
	released     map[types.UID]bool          // pods that SyncTerminatedPod has released, until their next sync or removal
}

var _ podworker.Syncer = (*Runner)(nil)

// New returns a Runner. The error reports every problem with cfg.
func New(cfg Config) (*Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podrunner: invalid config: %w", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("podrunner: %w", err)
	}
	return &Runner{
		cfg:          cfg,
		slots:        make(slots, cfg.ParallelStarts),
		waiting:      map[types.UID]map[string]corev1.ContainerStateWaiting{},
		enforcements: map[types.UID]enforcement{},
		preStopped:   map[types.UID]map[string]bool{},
		terminations: map[types.UID]*terminationState{},
		restarting:   map[types.UID]bool{},
		injections:   map[types.UID]injections{},
		replacements: map[types.UID]string{},
		mountWaits:   map[types.UID]time.Duration{},
		released:     map[types.UID]bool{},
	}, nil
}

func (c Config) withDefaults() (Config, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.PostStartTimeout == 0 {
		c.PostStartTimeout = DefaultPostStartTimeout
	}
	if c.ParallelStarts == 0 {
		c.ParallelStarts = defaultParallelStarts()
	}
	if c.Facts == nil {
		c.Facts = func() Facts { return Facts{} }
	}
	if c.RestartBackoff == nil {
		var err error
		if c.RestartBackoff, err = lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: c.Clock}); err != nil {
			return c, err
		}
	}
	c.Observer = c.Observer.withDefaults()
	return c, nil
}

func (o Observer) withDefaults() Observer {
	if o.Planned == nil {
		o.Planned = func(*corev1.Pod, Actions) {}
	}
	if o.SandboxStarted == nil {
		o.SandboxStarted = func(*corev1.Pod, error) {}
	}
	if o.ContainerStarted == nil {
		o.ContainerStarted = func(ContainerStart) {}
	}
	return o
}

// Waiting returns, by name, the containers of the pod that should run but were
// not started by the last sync, with the reasons. The caller owns the map.
func (r *Runner) Waiting(uid types.UID) map[string]corev1.ContainerStateWaiting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.waiting[uid])
}

// SyncPod carries out one plan to make the pod match its spec. The result
// terminal is always false: the caller computes the pod's phase and decides
// whether the phase is terminal. If a container or the sandbox backs off, the
// error contains the time of the next attempt. SyncPod returns an error if the
// status is stale, because a plan for a stale status could create a container
// twice.
func (r *Runner) SyncPod(ctx context.Context, req podworker.SyncRequest) (terminal bool, err error) {
	if req.Status.Stale {
		return false, fmt.Errorf("sync pod %s: %w", podName(req.Pod), errStale)
	}
	r.setReleased(req.Pod.UID, false)
	if err := r.clearTermination(ctx, req.Pod.UID); err != nil {
		return false, fmt.Errorf("sync pod %s: %w", podName(req.Pod), err)
	}
	r.forgetHooks(req.Status)
	node := r.node()
	pinnings, unpinned := r.pinnings(ctx, req.Pod, req.Status)
	actions := Plan(Input{
		Pod: req.Pod, Status: req.Status, Backoff: r.cfg.RestartBackoff.Until, Probes: r.cfg.Probes,
		Attempts: func(name string) uint32 { return r.attempts(req.Pod, name) }, Resources: r.resources(ctx, req.Pod, node),
		Restarting: r.wasRestarting(req.Pod), Pinnings: pinnings, Replaced: r.Replaced(ctx, req.Pod.UID),
	})
	r.setRestarting(req.Pod.UID, actions.Restarting)
	if !actions.Empty() {
		r.cfg.Observer.Planned(req.Pod, actions)
		r.cfg.Logger.DebugContext(ctx, "carrying out the plan for the pod", "pod", podName(req.Pod), "podUID", req.Pod.UID, "actions", actions.String())
		req.Acted()
	}
	run := &podSync{
		Runner: r, pod: req.Pod, status: req.Status, node: node, waiting: actions.Waiting, retryAt: actions.RetryAt,
		prepared: map[string]*runtimeapi.ContainerConfig{}, images: map[string]*fetched{},
	}
	defer run.releaseImages()
	for _, name := range sortedKeys(actions.Waiting) {
		if actions.Waiting[name].Reason == RestartingAllContainers {
			continue
		}
		r.event(podspec.ContainerReference(req.Pod, name), corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", name, podID(req.Pod))
	}
	err = errors.Join(unpinned, run.do(ctx, actions))
	r.setWaiting(req.Pod.UID, run.waiting)
	if !run.retryAt.IsZero() {
		err = errors.Join(err, &podworker.RetryError{At: run.retryAt, Err: errBackingOff})
	}
	return false, err
}

// Forget deletes the state of a pod from memory. The restart back-offs of the
// pod's containers remain until they expire.
func (r *Runner) Forget(uid types.UID) {
	r.mu.Lock()
	delete(r.waiting, uid)
	delete(r.enforcements, uid)
	delete(r.preStopped, uid)
	delete(r.terminations, uid)
	delete(r.restarting, uid)
	delete(r.injections, uid)
	delete(r.replacements, uid)
	delete(r.mountWaits, uid)
	delete(r.released, uid)
	r.mu.Unlock()
	r.cfg.RestartBackoff.Reset(sandboxKey(uid))
	r.cfg.Images.Forget(uid)
}

// setReleased records whether SyncTerminatedPod has released the pod, so that
// RemovePod need not release the pod again.
func (r *Runner) setReleased(uid types.UID, released bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if released {
		r.released[uid] = true
		return
	}
	delete(r.released, uid)
}

func (r *Runner) isReleased(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.released[uid]
}

func (r *Runner) setWaiting(uid types.UID, waiting map[string]corev1.ContainerStateWaiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(waiting) == 0 {
		delete(r.waiting, uid)
		return
	}
	r.waiting[uid] = waiting
}

// wasRestarting returns [Actions].Restarting of the pod's last plan. If the
// Runner has made no plan for the pod, wasRestarting reports whether the pod's
// condition AllContainersRestarting is True.
func (r *Runner) wasRestarting(pod *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if restarting, known := r.restarting[pod.UID]; known {
		return restarting
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue
	})
}

func (r *Runner) setRestarting(uid types.UID, restarting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restarting[uid] = restarting
}

// event records an event about a pod, or about the object of a reference: a
// container or the node.
func (r *Runner) event(about runtime.Object, eventType, reason, format string, args ...any) {
	if r.cfg.Events != nil {
		r.cfg.Events.Eventf(about, eventType, reason, format, args...)
	}
}

// node returns the current description of the node.
func (r *Runner) node() Node {
	n := Node{
		Policy: r.cfg.Policy, Facts: r.cfg.Facts(),
		Agent: r.cfg.Agent, LogRoot: r.cfg.LogRoot, SeccompRoot: r.cfg.SeccompRoot,
	}
	if r.cfg.UserIDs != nil {
		n.UserNamespace = r.cfg.UserIDs.Lookup
	}
	return n
}
