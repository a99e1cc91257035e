package nodestatus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeGrace is how long the runtime may give no answer before the node becomes not ready.
// A restart of the runtime takes less time.
const runtimeGrace = 30 * time.Second

// Problems are the problems that the condition Ready shows, in addition to problems of the
// runtime. Every problem except Warning makes the node not ready.
type Problems struct {
	// Health are the failed health checks of the agent, such as "PLEG is not healthy: …".
	Health []string
	// Storage is the reason why volumes cannot be used. Empty means no problem.
	Storage string
	// ShuttingDown means that the machine is shutting down.
	ShuttingDown bool
	// Warning is a problem of the machine with which the node can still be ready. It is
	// appended to the message of the condition Ready.
	Warning string
}

// setConditions sets the conditions MemoryPressure, DiskPressure, PIDPressure and Ready. It
// adds missing conditions in this order.
func setConditions(s *corev1.NodeStatus, f Facts, now time.Time) {
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		c := pressure(kind, slices.Contains(f.Pressure, kind))
		if i := find(s.Conditions, kind); i >= 0 && s.Conditions[i].Status == c.Status {
			c.Reason, c.Message = s.Conditions[i].Reason, s.Conditions[i].Message
		}
		setCondition(s, c, now)
	}
	setCondition(s, ready(s, f, now), now)
}

// setCondition sets a condition. Its transition time changes only with its status.
func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now time.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	i := find(s.Conditions, c.Type)
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}

func find(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) int {
	return slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
}

// ready returns the condition Ready, without times. The capacity of s must be set.
func ready(s *corev1.NodeStatus, f Facts, now time.Time) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", Message: "kubelet is posting ready status",
	}
	problems := runtimeProblems(f, now)
	if f.Problems.Storage != "" {
		problems = append(problems, errors.New(f.Problems.Storage))
	}
	if f.Problems.ShuttingDown {
		problems = append(problems, errors.New("node is shutting down"))
	}
	if missing := missingCapacity(s.Capacity, f.NoLocalStorageIsolation); len(missing) > 0 {
		problems = append(problems, fmt.Errorf("missing node capacity for resources: %s", strings.Join(missing, ", ")))
	}
	if err := utilerrors.NewAggregate(problems); err != nil {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", err.Error()
	}
	if f.Problems.Warning != "" {
		c.Message += ". WARNING: " + f.Problems.Warning
	}
	return c
}

// runtimeProblems returns the problems of the runtime, the agent and the network, in the
// kubelet's order.
func runtimeProblems(f Facts, now time.Time) (problems []error) {
	switch r := f.Runtime; {
	case r.ReadyAt.IsZero():
		problems = append(problems, errors.New("container runtime status check may not have completed yet"))
	case !r.ReadyAt.Add(runtimeGrace).After(now):
		problems = append(problems, errors.New("container runtime is down"))
	}
	for _, text := range f.Problems.Health {
		problems = append(problems, errors.New(text))
	}
	if c := runtimeCondition(f.Runtime.Status, runtimeapi.RuntimeReady); f.Runtime.Status != nil && !c.GetStatus() {
		problems = append(problems, fmt.Errorf("container runtime not ready: %s", conditionText(c)))
	}
	if err := NetworkProblem(f.Runtime.Status); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// NetworkProblem returns why the network of a runtime is not ready, or nil if it is ready. answer
// is the last response of the call Status, or nil before the first response. If answer is nil,
// NetworkProblem returns an error, because the state of the network is unknown.
func NetworkProblem(answer *runtimeapi.StatusResponse) error {
	if answer == nil {
		return errors.New("network state unknown")
	}
	if c := runtimeCondition(answer, runtimeapi.NetworkReady); !c.GetStatus() {
		return fmt.Errorf("container runtime network not ready: %s", conditionText(c))
	}
	return nil
}

func runtimeCondition(answer *runtimeapi.StatusResponse, kind string) *runtimeapi.RuntimeCondition {
	for _, c := range answer.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func conditionText(c *runtimeapi.RuntimeCondition) string {
	if c == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%s=%t reason:%s message:%s", c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage())
}

// missingCapacity returns the required resources that capacity does not contain.
func missingCapacity(capacity corev1.ResourceList, noLocalStorageIsolation bool) (missing []string) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage} {
		if name == corev1.ResourceEphemeralStorage && noLocalStorageIsolation {
			continue
		}
		if _, found := capacity[name]; !found {
			missing = append(missing, string(name))
		}
	}
	return missing
}
