package nodestatus

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReportPeriod is the kubelet's period for reporting an unchanged status of a node.
const ReportPeriod = 5 * time.Minute

// ReportDue reports whether a node's next status must be sent to the API server. If the next
// status differs from the previous status, it must be sent at once. Otherwise it must be sent
// when period has passed since the last successful report. Differences in heartbeat times and in
// the order of conditions do not count. lastReport is zero before the first report. The kubelet's
// period is [ReportPeriod].
func ReportDue(previous, next *corev1.NodeStatus, lastReport, now time.Time, period time.Duration) bool {
	return changed(previous, next) || now.Sub(lastReport) >= period
}

// changed reports whether two statuses differ in more than heartbeat times and the order
// of conditions.
func changed(previous, next *corev1.NodeStatus) bool {
	if previous == nil || next == nil {
		return previous != next
	}
	a, b := *previous, *next
	a.Conditions, b.Conditions = withoutHeartbeats(a.Conditions), withoutHeartbeats(b.Conditions)
	return !equality.Semantic.DeepEqual(a, b)
}

// withoutHeartbeats returns the conditions sorted by type, without heartbeat times.
func withoutHeartbeats(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	slices.SortStableFunc(conditions, func(a, b corev1.NodeCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return conditions
}
