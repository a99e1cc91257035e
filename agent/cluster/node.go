package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

const (
	// requestTimeout limits one request about the node or its lease.
	requestTimeout = 10 * time.Second
	// readyWait is how long the first report waits for a node that is not ready yet.
	readyWait = 5 * time.Second
	// minRegisterBackoff and maxRegisterBackoff are the shortest and the longest time between two
	// attempts to register the node. The time doubles with each attempt.
	minRegisterBackoff = 100 * time.Millisecond
	maxRegisterBackoff = 7 * time.Second
)

// node registers the node and reports its status.
type node struct {
	cfg     Config
	watched *watched[*corev1.Node]
	events  *events

	// These fields are used only by the goroutine of run.
	stored     *corev1.Node // the version that run has created, patched or read last
	attempts   nodestatus.Attempts
	lastReport time.Time     // of a successful report; zero before the first
	delay      time.Duration // random; added to ReportPeriod for the next report of an unchanged status
	cordoned   bool          // spec.unschedulable in the last event
}

func newNode(cfg Config, e *events) *node {
	api := cfg.Client.CoreV1().Nodes()
	return &node{cfg: cfg, events: e, watched: newWatched(&corev1.Node{}, cfg, kind[*corev1.NodeList]{api.List, api.Watch}, byName(cfg.NodeName))}
}

// cached returns the node from the watch.
func (n *node) cached(context.Context) (*corev1.Node, error) {
	if !n.watched.isSynced() {
		return nil, fmt.Errorf("node %s is not known yet: %w", n.cfg.NodeName, n.watched.notSynced())
	}
	found, ok := n.watched.get("", n.cfg.NodeName)
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), n.cfg.NodeName)
	}
	return found, nil
}

// fresh gets the node from the API server.
func (n *node) fresh(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := n.cfg.Heartbeats.CoreV1().Nodes().Get(ctx, n.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", n.cfg.NodeName, err)
	}
	return got, nil
}

// owner returns the node as the owner of other objects.
func (n *node) owner(ctx context.Context) (*corev1.Node, error) {
	if cached, err := n.cached(ctx); err == nil {
		return cached, nil
	}
	return n.fresh(ctx)
}

// localNode is the part of an agent that node needs.
type localNode interface {
	// Node returns the node as the agent reports it.
	Node() *corev1.Node
	// Changes returns notifications of changes of the node.
	Changes(ctx context.Context) <-chan struct{}
}

// run registers the node, except if NoRegistration is set. It then calls the given function, and
// reports the status of the node until ctx is done.
func (n *node) run(ctx context.Context, local localNode, registered func()) {
	changes := local.Changes(ctx)
	if !n.awaitReady(ctx, local, changes) || !n.cfg.NoRegistration && !n.register(ctx, local) {
		return
	}
	registered()
	for ctx.Err() == nil {
		n.report(ctx, local.Node())
		n.sleep(ctx, local, changes)
	}
}

// awaitReady waits until the agent has computed the status of the node, and then at most readyWait
// until the node is ready. Without this wait, a restarted agent would first report that the node is
// not ready, because the agent has not listed its pods yet. awaitReady returns false if ctx is done
// first.
func (n *node) awaitReady(ctx context.Context, local localNode, changes <-chan struct{}) bool {
	var limit <-chan time.Time
	for {
		conditions := local.Node().Status.Conditions
		if limit == nil && len(conditions) > 0 {
			timer := n.cfg.Clock.NewTimer(readyWait)
			defer timer.Stop()
			limit = timer.C()
		}
		if slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return true
		}
		select {
		case <-changes:
		case <-limit:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// sleep waits until the next report is due. After a successful report, this is one period later, or
// as soon as the agent must record an event about the node's status, such as NodeNotReady. After a
// failed report, [nodestatus.Attempts] determines the time.
func (n *node) sleep(ctx context.Context, local localNode, changes <-chan struct{}) {
	wait := max(0, n.attempts.Next(n.cfg.StatusPeriod).Sub(n.cfg.Clock.Now()))
	timer := n.cfg.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			return
		case <-changes:
			if n.attempts.Failed == 0 && n.stored != nil && len(nodestatus.Events(n.cfg.NodeName, &n.stored.Status, &local.Node().Status)) > 0 {
				return
			}
		}
	}
}

// register creates the node, or updates the labels of the existing node. It retries until it
// succeeds, and returns false if ctx is done first.
func (n *node) register(ctx context.Context, local localNode) bool {
	for wait := minRegisterBackoff; ; wait = min(2*wait, maxRegisterBackoff) {
		err := n.tryRegister(ctx, local.Node())
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		n.cfg.Logger.ErrorContext(ctx, "could not register the node, will retry", "node", n.cfg.NodeName, "retryIn", wait, "err", err)
		sleepUntil(ctx, n.cfg.Clock, n.cfg.Clock.Now().Add(wait))
	}
}

func (n *node) tryRegister(ctx context.Context, own *corev1.Node) error {
	call, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	initial := n.initial(own)
	created, err := n.cfg.Client.CoreV1().Nodes().Create(call, initial, metav1.CreateOptions{})
	if err == nil {
		n.cfg.Logger.InfoContext(ctx, "created the node", "node", n.cfg.NodeName)
		n.stored, n.lastReport, n.delay = created, n.cfg.Clock.Now(), n.randomDelay()
		n.record(&corev1.NodeStatus{}, &created.Status)
		return nil
	}
	// If the user is not permitted to create nodes, the node may still exist.
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("create node: %w", err)
	}
	existing, errGet := n.fresh(ctx)
	if errGet != nil {
		return errors.Join(fmt.Errorf("create node: %w", err), errGet)
	}
	next := existing.DeepCopy()
	reconcileLabels(next, initial)
	patch, err := patchNode(existing, next)
	if err != nil || patch == nil {
		n.stored = existing
		return err
	}
	n.cfg.Logger.InfoContext(ctx, "updated the labels of the existing node", "node", n.cfg.NodeName)
	return n.patch(ctx, patch)
}

// initial returns the Node object that the agent creates at the API server.
func (n *node) initial(own *corev1.Node) *corev1.Node {
	initial := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.cfg.NodeName, Labels: maps.Clone(own.Labels), Annotations: maps.Clone(own.Annotations)},
		Spec:       corev1.NodeSpec{Taints: n.cfg.Taints, ProviderID: n.cfg.ProviderID},
		Status:     mergeStatus(&corev1.NodeStatus{}, &own.Status, metav1.NewTime(n.cfg.Clock.Now())),
	}
	if initial.Labels == nil {
		initial.Labels = map[string]string{}
	}
	maps.Copy(initial.Labels, n.cfg.Labels)
	return initial
}

// report reports the status of the node if a report is due.
func (n *node) report(ctx context.Context, own *corev1.Node) {
	err := n.tryReport(ctx, own)
	if ctx.Err() != nil {
		return
	}
	n.attempts.Last = n.cfg.Clock.Now()
	if err == nil {
		n.attempts.Failed = 0
		return
	}
	n.attempts.Failed++
	n.cfg.Logger.WarnContext(ctx, "could not report the status of the node, will retry", "node", n.cfg.NodeName, "failures", n.attempts.Failed, "err", err)
}

func (n *node) tryReport(ctx context.Context, own *corev1.Node) error {
	base, err := n.base(ctx)
	if err != nil {
		return err
	}
	n.recordScheduling(base.Spec.Unschedulable)
	now := n.cfg.Clock.Now()
	next := base.DeepCopy()
	next.Status = mergeStatus(&base.Status, &own.Status, metav1.NewTime(now))
	requireLabels(next, own)
	due := nodestatus.ReportDue(&base.Status, &next.Status, n.lastReport, now, n.cfg.ReportPeriod+n.delay)
	if !due && maps.Equal(base.Labels, next.Labels) {
		n.stored = base
		return nil
	}
	changed := nodestatus.ReportDue(&base.Status, &next.Status, now, now, n.cfg.ReportPeriod) || n.lastReport.IsZero()
	patch, err := patchNode(base, next)
	if err != nil {
		return err
	}
	if err := n.patch(ctx, patch); err != nil {
		return err
	}
	n.lastReport, n.delay = now, 0
	if changed {
		n.delay = n.randomDelay()
	}
	n.record(&base.Status, &next.Status)
	return nil
}

// randomDelay returns the random delay of the next report of an unchanged status. The delay may be
// negative. Without it, nodes that changed at the same time would send all later reports at the
// same time.
func (n *node) randomDelay() time.Duration {
	return time.Duration(float64(n.cfg.ReportPeriod) * (n.cfg.Random() - 0.5))
}

// base returns the node as the API server shows it. After a failure, it gets the node from the API
// server, because the cached node may be outdated. It also does this if the watch has not delivered
// our last patch within StatusPeriod: the API server may have been restored from an older state.
func (n *node) base(ctx context.Context) (*corev1.Node, error) {
	if n.attempts.Failed > 0 {
		return n.fresh(ctx)
	}
	cached, err := n.cached(ctx)
	switch {
	case err != nil && n.stored != nil:
		return n.stored, nil // the watch has not started yet, or has not delivered the created node yet
	case err != nil:
		return nil, err
	case n.stored != nil && isNewer(n.stored, cached) && n.cfg.Clock.Since(n.lastReport) < n.cfg.StatusPeriod:
		return n.stored, nil // the watch has not delivered our last patch yet
	case n.stored != nil && isNewer(n.stored, cached):
		return n.fresh(ctx)
	default:
		return cached, nil
	}
}

// isNewer reports whether a is newer than b. Resource versions of objects of one kind are ordered
// as numbers (KEP-5504).
func isNewer(a, b *corev1.Node) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX == nil && errY == nil && x > y
}

// patch patches the status of the node.
func (n *node) patch(ctx context.Context, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stored, err := n.cfg.Heartbeats.CoreV1().Nodes().Patch(ctx, n.cfg.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status: %w", err)
	}
	n.stored = stored
	return nil
}

// record records the events about a change of the status.
func (n *node) record(previous, next *corev1.NodeStatus) {
	for _, e := range nodestatus.Events(n.cfg.NodeName, previous, next) {
		n.recordEvent(e)
	}
}

// recordScheduling records an event if the node was cordoned or uncordoned. Like the kubelet, it
// also records an event if the node is cordoned when the agent starts.
func (n *node) recordScheduling(unschedulable bool) {
	if unschedulable != n.cordoned {
		n.cordoned = unschedulable
		n.recordEvent(nodestatus.SchedulingEvent(n.cfg.NodeName, unschedulable))
	}
}

// recordEvent records an event about the node. The UID is the node's name, so that kubectl
// describe shows the event.
func (n *node) recordEvent(e nodestatus.Event) {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.cfg.NodeName, UID: types.UID(n.cfg.NodeName)}
	n.events.AnnotatedEventf(ref, nil, e.Type, e.Reason, "%s", e.Message)
}

// sleepUntil waits until the given time or until ctx is done.
func sleepUntil(ctx context.Context, clk clock.Clock, at time.Time) {
	timer := clk.NewTimer(max(0, at.Sub(clk.Now())))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
