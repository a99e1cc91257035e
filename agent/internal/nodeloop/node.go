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

// nodeState is the node as it was last computed.
type nodeState struct {
	name    string
	created time.Time

	current      atomic.Pointer[corev1.Node]
	shuttingDown atomic.Bool
	first        chan struct{} // closed when the runtime was asked and the node was computed
	closeFirst   func()

	mu     sync.Mutex         // held while the node is computed; guards what follows
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

// computed records that the node is known.
func (n *nodeState) computed() { n.closeFirst() }

// Node returns the node as a kubelet reports it, after Config.NodeStatus. The same pointer is
// returned until something has changed; a change of heartbeat times alone counts after five
// minutes. Before Run the status is empty.
func (l *Loop) Node() *corev1.Node { return l.node.current.Load() }

// AwaitNode returns the node when the machine and the runtime have been asked for the first
// time. A runtime that does not answer delays it by three seconds.
func (l *Loop) AwaitNode(ctx context.Context) (*corev1.Node, error) {
	select {
	case <-l.node.first:
		return l.Node(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the first status of node %s: %w", l.cfg.NodeName, ctx.Err())
	}
}

// Recompute has the node computed again soon, such as after a change of what
// Config.NodeStatus does. It never blocks.
func (l *Loop) Recompute() { l.renew.Trigger() }

// ShutdownStarted makes the node not ready until ShutdownEnded is called.
func (l *Loop) ShutdownStarted() {
	l.node.shuttingDown.Store(true)
	l.renew.Trigger()
}

// ShutdownEnded ends what ShutdownStarted began: the shutdown was canceled.
func (l *Loop) ShutdownEnded() {
	l.node.shuttingDown.Store(false)
	l.renew.Trigger()
}

// renewNode computes the node, and reports a change.
func (l *Loop) renewNode(ctx context.Context) {
	changed := l.storeNode(ctx)
	if ctx.Err() != nil {
		return // the agent stops
	}
	l.parts.record(partHost, l.machine.problem())
	if changed {
		l.cfg.Changed()
	}
}

// storeNode computes the node, and stores it and returns true if it has changed.
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
	next := n.object(h)
	next.Status = *n.status.DeepCopy()
	l.cfg.NodeStatus(next)
	setTimes(next.Status.Conditions, last.Status.Conditions, metav1.NewTime(now))
	if equality.Semantic.DeepEqual(last.ObjectMeta, next.ObjectMeta) && equality.Semantic.DeepEqual(last.Spec, next.Spec) &&
		!nodestatus.Due(&last.Status, &next.Status, n.since, now, nodestatus.ReportPeriod) {
		return false
	}
	n.since = now
	n.current.Store(next)
	return true
}

// setTimes sets the missing times of conditions that Config.NodeStatus has added. The
// transition time moves with the condition's status.
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

// nodeFacts returns what the status of the node is computed from.
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
