package nodeloop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
)

// Plan is what the loop would do now to free resources of the node.
type Plan struct {
	Eviction   eviction.Decision
	Images     imagegc.Plan
	Containers containergc.Plan
}

// Plan returns what eviction and garbage collection would do now. It changes nothing. Callers
// within a second get the same plan. If the method returns an error, the Plan has the parts that
// could be computed.
func (l *Loop) Plan(ctx context.Context) (Plan, error) { return l.plan.get(ctx) }

// PlanEviction returns what eviction would do now. Callers within a second get the same
// decision.
func (l *Loop) PlanEviction(ctx context.Context) (eviction.Decision, error) {
	e, err := l.evaluation.get(ctx)
	return e.decision, wrap("plan evictions", err)
}

func (l *Loop) makePlan(ctx context.Context) (Plan, error) {
	decision, errEviction := l.PlanEviction(ctx)
	images, errImages := l.imageGC.Plan(ctx)
	containers, errContainers := l.containerGC.Plan(ctx)
	return Plan{decision, images, containers}, errors.Join(
		errEviction, wrap("plan the deletion of images", errImages), wrap("plan the removal of containers", errContainers))
}

// evaluation is an eviction decision that is not carried out, with the facts on which it is
// based.
type evaluation struct {
	decision eviction.Decision
	facts    eviction.Observations
}

// evaluate returns the decision that the eviction manager would make now.
func (l *Loop) evaluate(ctx context.Context) (evaluation, error) {
	stats := l.evictionStats()
	node, errNode := stats.Node(ctx)
	facts := eviction.Observations{
		Node: node, Pods: l.cfg.Pods.Active(), PodStats: map[types.UID]*eviction.PodStats{}, CheckLimits: true,
	}
	pods, errPods := stats.Pods(ctx, facts.Pods)
	for i := range pods {
		facts.PodStats[pods[i].UID] = &pods[i]
	}
	policy := l.cfg.Eviction
	policy.Reclaimers = []eviction.ReclaimAction{eviction.DeleteContainers}
	if l.cfg.Host.ImageFS != nil {
		policy.Reclaimers = append(policy.Reclaimers, eviction.DeleteImages)
	}
	decision := eviction.PlanEviction(l.pressure.decision().Next, facts, policy, l.cfg.Clock.Now())
	return evaluation{decision, facts}, errors.Join(errNode, errPods)
}

// Summary returns the stats summary of the node and its pods. Callers within a second get the
// same summary. If Summary returns an error, a summary that is not nil has the values that could
// be measured.
func (l *Loop) Summary(ctx context.Context) (*statsapi.Summary, error) { return l.summary.get(ctx) }

func (l *Loop) measureSummary(ctx context.Context) (*statsapi.Summary, error) {
	if l.cfg.Host.Stats == nil {
		return nil, fmt.Errorf("measure the node: the host has no statistics: %w", errors.ErrUnsupported)
	}
	pods := slices.DeleteFunc(l.cfg.Pods.Active(), func(p *corev1.Pod) bool { return p == nil })
	summary, err := l.cfg.Host.Stats.Summary(ctx, pods)
	if summary != nil && summary.Node.NodeName == "" {
		summary.Node.NodeName = l.cfg.NodeName
	}
	return summary, err
}

// wrap adds the action to err. It returns nil if err is nil.
func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", action, err)
}
