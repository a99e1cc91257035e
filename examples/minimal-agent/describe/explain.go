package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/prober"
)

// Question is what Explain needs to know beside the pod's facts.
type Question struct {
	Facts
	Now time.Time
	// Problems are those of manifests that may be this pod's.
	Problems []string
	// Runtime is why the runtime is not well, and Ready why the agent can't act yet;
	// empty if all is well.
	Runtime, Ready string
	// Desired says that a manifest asks for the pod, and Refused that it may not start.
	Desired, Refused bool
	// Waiting says why containers are not started, as the last turn left it.
	Waiting map[string]corev1.ContainerStateWaiting
	// Restarts are the times before which containers don't start again, and Pulls the
	// same of their images.
	Restarts, Pulls map[string]time.Time
	// Due is when the pod's active deadline is over, EndsBy when it is to have ended
	// at the latest. Zero: there is no such time.
	Due, EndsBy time.Time
	// Plan is what the next turn would do.
	Plan string
	// Ranks are the orders in which pods would go, by signal, and Signals where these
	// signals are.
	Ranks   map[eviction.Signal][]eviction.Candidate
	Signals []api.Signal
}

// Explain says why a pod is in its state, and what comes next.
func Explain(q Question) api.Explanation {
	e := api.Explanation{Pod: Pod(q.Facts), Why: []string{}, Next: []api.Step{}, Plan: strings.TrimSpace(q.Plan)}
	for _, p := range q.Problems {
		e.Why = append(e.Why, "a manifest has a problem, so that its last good version counts: "+p)
	}
	ended := podspec.IsTerminal(q.Pod.Status.Phase) && !q.Terminating
	switch {
	case q.Refused:
		e.Why = append(e.Why, fmt.Sprintf("it was not admitted: %s: %s", q.Pod.Status.Reason, q.Pod.Status.Message))
		e.Next = append(e.Next, api.Step{What: "nothing, until its manifest changes or the agent starts again"})
	case ended:
		e.Why = append(e.Why, endedWhy(q.Pod)...)
		e.Next = append(e.Next, api.Step{What: "nothing, until its manifest changes: a pod that has ended does not run again"})
	default:
		e.Why = append(e.Why, q.alive()...)
		e.Next = append(e.Next, q.next()...)
		e.Stays = q.stays()
	}
	if len(e.Why) == 0 {
		e.Why = append(e.Why, "all its containers run and are ready")
	}
	slices.SortStableFunc(e.Next, func(a, b api.Step) int {
		switch {
		case a.At == nil || b.At == nil:
			return cmp.Compare(btoi(a.At != nil), btoi(b.At != nil))
		default:
			return a.At.Compare(*b.At)
		}
	})
	return e
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// endedWhy says how a pod came to its end.
func endedWhy(p *corev1.Pod) (why []string) {
	s := &p.Status
	if s.Reason != "" || s.Message != "" {
		why = append(why, strings.TrimSuffix(fmt.Sprintf("%s: %s", cmp.Or(s.Reason, string(s.Phase)), s.Message), ": "))
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil {
				why = append(why, fmt.Sprintf("container %s %s", list[i].Name, lastEnd(t)))
			}
		}
	}
	return append(why, fmt.Sprintf("its restart policy is %s", cmp.Or(string(p.Spec.RestartPolicy), "Always")))
}

func lastEnd(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("ended with exit code %d", t.ExitCode)
	if t.Signal != 0 {
		text += fmt.Sprintf(" by signal %d", t.Signal)
	}
	text += fmt.Sprintf(" (%s) at %s", cmp.Or(t.Reason, "no reason is known"), t.FinishedAt.UTC().Format(time.RFC3339))
	if m := strings.TrimSpace(t.Message); m != "" {
		text += ": " + m
	}
	return text
}

// alive says what keeps a pod that has not ended from being well.
func (q Question) alive() (why []string) {
	if q.Ready != "" {
		why = append(why, "the agent does nothing with pods yet: "+q.Ready)
	}
	if q.Runtime != "" {
		why = append(why, "the runtime is not well, so nothing can be done: "+q.Runtime)
	}
	if q.Terminating {
		text := "it is being ended"
		if !q.Desired {
			text += ": no manifest asks for it"
		}
		why = append(why, text)
	}
	if s := &q.Pod.Status; s.Reason != "" || s.Message != "" {
		why = append(why, strings.Trim(s.Reason+": "+s.Message, ": "))
	}
	for _, kind := range []string{"init", "sidecar", "main", "ephemeral"} {
		for _, c := range Pod(q.Facts).Containers {
			if c.Kind == kind {
				why = append(why, q.containerWhy(c)...)
			}
		}
	}
	return why
}

// containerWhy says what is to be said of one container.
func (q Question) containerWhy(c api.Container) (why []string) {
	s := ContainerStatus(q.Pod, c.Name)
	switch {
	case s == nil || s.State.Waiting != nil:
		reason, message := "not started yet", ""
		if s != nil && s.State.Waiting != nil {
			reason, message = cmp.Or(s.State.Waiting.Reason, reason), s.State.Waiting.Message
		}
		if w, ok := q.Waiting[c.Name]; ok {
			reason, message = w.Reason, w.Message
		}
		why = append(why, strings.TrimSuffix(fmt.Sprintf("container %s waits: %s: %s", c.Name, reason, message), ": "))
		if s != nil && s.LastTerminationState.Terminated != nil {
			why = append(why, fmt.Sprintf("container %s last %s", c.Name, lastEnd(s.LastTerminationState.Terminated)))
		}
	case s.State.Terminated != nil && (c.Kind != "init" || s.State.Terminated.ExitCode != 0):
		why = append(why, fmt.Sprintf("container %s %s", c.Name, lastEnd(s.State.Terminated)))
	case s.State.Running != nil && c.Kind == "init":
		why = append(why, fmt.Sprintf("container %s runs, and the next waits for its end", c.Name))
	case s.State.Running != nil && !s.Ready:
		why = append(why, fmt.Sprintf("container %s runs and is not ready", c.Name))
	}
	for _, p := range q.Probes[c.Name] {
		if text := probeWhy(c.Name, p); text != "" {
			why = append(why, text)
		}
	}
	return why
}

// probeWhy says of a probe what is not as it is for a container that is well.
func probeWhy(container string, p Probe) string {
	failures, failed := streak(p)
	name := fmt.Sprintf("the %s probe of container %s", strings.ToLower(p.Kind.String()), container)
	output := ""
	if n := len(p.Runs); n > 0 && p.Runs[n-1].Output != "" {
		output = ": " + strings.TrimSpace(p.Runs[n-1].Output)
	}
	threshold := positive(p.Spec.FailureThreshold, 3)
	switch {
	case len(p.Runs) == 0 && p.Result != prober.Success:
		return name + " has not run yet"
	case failed && failures < threshold:
		return fmt.Sprintf("%s fails, %d of %d failures%s", name, failures, threshold, output)
	case failed:
		return fmt.Sprintf("%s has failed%s", name, output)
	case p.Result != prober.Success:
		return fmt.Sprintf("%s succeeds, %d of %d successes", name, failures, positive(p.Spec.SuccessThreshold, 1))
	default:
		return ""
	}
}

// streak counts how often the last outcome has come in a row, and says whether it is
// a failure. What could not be carried out counts as neither.
func streak(p Probe) (n int32, failed bool) {
	for i, r := range slices.Backward(p.Runs) {
		bad := r.Outcome == prober.Failed
		if i == len(p.Runs)-1 {
			failed = bad
		}
		if bad != failed {
			break
		}
		n++
	}
	return n, failed
}

func positive(n, standard int32) int32 {
	if n <= 0 {
		return standard
	}
	return n
}

// next are the things that will happen by themselves.
func (q Question) next() (steps []api.Step) {
	at := func(t time.Time, format string, args ...any) {
		s := api.Step{What: fmt.Sprintf(format, args...)}
		if t.After(q.Now) {
			s.At = &t
		}
		steps = append(steps, s)
	}
	if !q.EndsBy.IsZero() {
		at(q.EndsBy, "what still runs of it is killed")
	}
	if q.Terminating {
		return append(steps, api.Step{What: "its containers end, and what is left of it is removed"})
	}
	if !q.Due.IsZero() {
		at(q.Due, "its active deadline of %d s is over, and it is ended", *q.Pod.Spec.ActiveDeadlineSeconds)
	}
	for _, name := range sorted(q.Restarts) {
		at(q.Restarts[name], "container %s starts again", name)
	}
	for _, name := range sorted(q.Pulls) {
		at(q.Pulls[name], "the image of container %s is pulled again", name)
	}
	for _, name := range sorted(q.Waiting) {
		_, restarts := q.Restarts[name]
		_, pulls := q.Pulls[name]
		if text := retry(name, q.Waiting[name].Reason); text != "" && !restarts && !pulls {
			at(time.Time{}, "%s", text)
		}
	}
	for _, c := range Pod(q.Facts).Containers {
		for _, p := range q.Probes[c.Name] {
			if c.State == "running" && len(p.Runs) > 0 {
				at(p.Runs[len(p.Runs)-1].At.Add(time.Duration(positive(p.Spec.PeriodSeconds, 10))*time.Second), "%s", probeNext(c.Name, p))
			}
		}
	}
	return steps
}

// retry says what becomes of a container that could not be started, empty if there is
// nothing to say of that reason.
func retry(container, reason string) string {
	switch reason {
	case "ErrImageNeverPull":
		return fmt.Sprintf("container %s starts when its image is there: it is looked for again within a minute, and never pulled", container)
	case "InvalidImageName":
		return fmt.Sprintf("container %s starts when its manifest names an image that can be", container)
	case "ErrImagePull", "ImagePullBackOff", "ImageInspectError",
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError":
		return fmt.Sprintf("container %s is tried again within a minute", container)
	default:
		return ""
	}
}

// probeNext says what the next run of a probe may lead to.
func probeNext(container string, p Probe) string {
	text := fmt.Sprintf("the %s probe of container %s runs", strings.ToLower(p.Kind.String()), container)
	n, failed := streak(p)
	left := positive(p.Spec.FailureThreshold, 3) - n
	switch {
	case !failed || left <= 0:
		return text
	case p.Kind == prober.Readiness:
		return fmt.Sprintf("%s; after %d more failures it counts as not ready", text, left)
	default:
		return fmt.Sprintf("%s; after %d more failures the container is killed", text, left)
	}
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// stays says where the pod stands in the order of eviction, for the signal that is
// nearest to its threshold.
func (q Question) stays() string {
	nearest, ratio := -1, 0.0
	for i, s := range q.Signals {
		if _, ranked := q.Ranks[eviction.Signal(s.Name)]; !ranked || s.Time == nil || len(s.Thresholds) == 0 {
			continue
		}
		if r := float64(s.Available) / float64(max(highest(s), 1)); nearest < 0 || r < ratio {
			nearest, ratio = i, r
		}
	}
	if nearest < 0 {
		return "there is no threshold of eviction that is near"
	}
	s := q.Signals[nearest]
	candidates := q.Ranks[eviction.Signal(s.Name)]
	place := slices.IndexFunc(candidates, func(c eviction.Candidate) bool { return c.Pod != nil && c.Pod.UID == q.Pod.UID })
	if place < 0 {
		return "it is not among the pods that can be evicted"
	}
	c := candidates[place]
	where := fmt.Sprintf("number %d of %d to be evicted when %s runs short (%s; there is %s)",
		place+1, len(candidates), s.Name, thresholdsText(s), amount(s.Name, s.Available))
	if c.Kept != "" {
		return fmt.Sprintf("it is never evicted: %s; it would be %s", c.Kept, where)
	}
	text := fmt.Sprintf("%s: priority %d, class %s", where, c.Priority, c.QOS)
	if c.Usage.Known() {
		text += fmt.Sprintf(", uses %s and asks for %s", amount(s.Name, c.Usage.Value), amount(s.Name, c.Request))
	}
	return text
}

func highest(s api.Signal) (most int64) {
	for _, t := range s.Thresholds {
		most = max(most, t.Value)
	}
	return most
}

func thresholdsText(s api.Signal) string {
	var texts []string
	for _, t := range s.Thresholds {
		texts = append(texts, t.Text)
	}
	return strings.Join(texts, ", ")
}

// amount is a figure of a signal in its unit.
func amount(signal string, n int64) string {
	if strings.HasSuffix(signal, "Free") || strings.HasPrefix(signal, "pid.") {
		return fmt.Sprint(n)
	}
	const units = "KMGTPE"
	value, unit := float64(n), ""
	for i := 0; i < len(units) && value >= 1024; i++ {
		value, unit = value/1024, units[i:i+1]+"i"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + unit
}
