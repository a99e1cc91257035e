package nodeloop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// nodeState is the last computed node.
type nodeState struct {
	name    string
	created time.Time

	current      atomic.Pointer[corev1.Node]
	shuttingDown atomic.Bool
	first        chan struct{} // closed when the node was computed after the first status request to the runtime
	closeFirst   func()

	mu     sync.Mutex         // held during a computation of the node; guards the following fields
	status *corev1.NodeStatus // without the changes of Config.NodeStatus; nil at first
	since  time.Time          // when current was stored
}

func (n *nodeState) init(name string, now time.Time) {
	n.name, n.created = name, now
	n.first = make(chan struct{})
	n.closeFirst = sync.OnceFunc(func() { close(n.first) })
	n.current.Store(n.object(host.Facts{}))
}

// object returns the node without a status.
func (n *nodeState) object(h host.Facts) *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: n.name}
	if h.Info.OperatingSystem != "" {
		labels[corev1.LabelOSStable] = h.Info.OperatingSystem
	}
	if h.Info.Architecture != "" {
		labels[corev1.LabelArchStable] = h.Info.Architecture
	}
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels, CreationTimestamp: metav1.NewTime(n.created)},
	}
}

// computed records that the node was computed after a status request to the runtime.
func (n *nodeState) computed() { n.closeFirst() }

// Node returns the node as a kubelet reports it, after Config.NodeStatus has modified it. It
// returns the same pointer until the node has changed. If only heartbeat times change, it
// returns the same pointer for five minutes. Before Run, the status is empty.
func (l *Loop) Node() *corev1.Node { return l.node.current.Load() }

// AwaitNode waits until the loop has requested the facts of the machine and the status of the
// runtime for the first time, and returns the node. A runtime that does not answer delays
// AwaitNode by three seconds.
func (l *Loop) AwaitNode(ctx context.Context) (*corev1.Node, error) {
	select {
	case <-l.node.first:
		return l.Node(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the first status of node %s: %w", l.cfg.NodeName, ctx.Err())
	}
}

// Recompute triggers an update of the node, for example when Config.NodeStatus would make other
// changes than in its last call. It never blocks.
func (l *Loop) Recompute() { l.nodeLoop.Trigger() }

// ShutdownStarted makes the node not ready until ShutdownEnded is called.
func (l *Loop) ShutdownStarted() {
	l.node.shuttingDown.Store(true)
	l.nodeLoop.Trigger()
}

// ShutdownEnded undoes ShutdownStarted after a cancelled shutdown.
func (l *Loop) ShutdownEnded() {
	l.node.shuttingDown.Store(false)
	l.nodeLoop.Trigger()
}

// updateNode computes the node and reports a change.
func (l *Loop) updateNode(ctx context.Context) {
	changed := l.storeNode(ctx)
	if ctx.Err() != nil {
		return // the agent stops
	}
	l.parts.record(partHost, l.machine.problem())
	if changed {
		l.cfg.Changed()
	}
}

// storeNode computes the node, and stores it if it has changed. It reports whether the node has
// changed.
func (l *Loop) storeNode(ctx context.Context) bool {
	n := &l.node
	n.mu.Lock()
	defer n.mu.Unlock()
	h := l.machine.read(ctx)
	if ctx.Err() != nil {
		return false
	}
	now, last := l.cfg.Clock.Now(), n.current.Load()
	n.status = nodestatus.Next(n.status, l.nodeFacts(h), now)
	n.status.DeclaredFeatures = declaredFeatures()
	next := n.object(h)
	next.Status = *n.status.DeepCopy()
	l.cfg.NodeStatus(next)
	setTimes(next.Status.Conditions, last.Status.Conditions, metav1.NewTime(now))
	if equality.Semantic.DeepEqual(last.ObjectMeta, next.ObjectMeta) && equality.Semantic.DeepEqual(last.Spec, next.Spec) &&
		!nodestatus.ReportDue(&last.Status, &next.Status, n.since, now, nodestatus.ReportPeriod) {
		return false
	}
	n.since = now
	n.current.Store(next)
	return true
}

// declaredFeatures returns the features that the node declares, sorted by name (KEP-5328). If a pod
// uses such a feature, the scheduler selects only nodes that declare the feature.
func declaredFeatures() []string {
	return []string{"RestartAllContainersOnContainerExits"}
}

// setTimes sets the missing times of conditions that Config.NodeStatus has added. The transition
// time stays the same until the status of the condition changes.
func setTimes(conditions, before []corev1.NodeCondition, now metav1.Time) {
	for i := range conditions {
		c := &conditions[i]
		if c.LastHeartbeatTime.IsZero() {
			c.LastHeartbeatTime = now
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now
			for _, b := range before {
				if b.Type == c.Type && b.Status == c.Status {
					c.LastTransitionTime = b.LastTransitionTime
				}
			}
		}
	}
}

// nodeFacts returns the facts from which the node's status is computed.
func (l *Loop) nodeFacts(h host.Facts) nodestatus.Facts {
	f := nodestatus.Facts{
		Capacity:  h.Capacity,
		MaxPods:   l.cfg.MaxPods,
		Reserved:  []corev1.ResourceList{l.cfg.Reserved, eviction.Reserved(h.Capacity, l.cfg.Eviction.Thresholds)},
		Info:      h.Info,
		SwapBytes: h.SwapBytes,
		Addresses: nodestatus.Addresses{Hostname: l.cfg.NodeName, NodeIPs: h.Addresses},
		Runtime:   l.runtime.answers(),
		Images:    l.imageGC.Images(),
		Pressure:  l.pressure.conditions(),
		Problems:  nodestatus.Problems{ShuttingDown: l.node.shuttingDown.Load()},
	}
	f.Info.KubeletVersion = l.cfg.Version
	if err := l.cfg.Pods.RuntimeHealth(); err != nil {
		f.Problems.Health = []string{"PLEG is not healthy: " + err.Error()}
	}
	if err := l.machine.problem(); err != nil {
		f.Problems.Warning = err.Error()
	}
	return f
}
