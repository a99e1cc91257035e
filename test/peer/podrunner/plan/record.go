package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A record is the actions of a side for one state.
type record struct {
	stopPod    bool
	restartAll bool
	sandbox    string
	starts     []start
	kills      map[string]kill // by id
	removes    []string
	updates    []update
	waits      map[string]string // by container
	retry      time.Time

	message  map[string]string // of the last Killing event, by container
	failures []string          // calls that failed
	misnamed []string          // IDs in our actions with a wrong name
}

// A start is the creation of a container or, if it has an ID, the start of an existing one.
type start struct {
	name, id string
	attempt  uint32
}

type kill struct {
	name, message string
	grace         int64
}

// An update is a change of the resources of a container or, without an ID, of the pod's
// cgroup.
type update struct {
	id  string
	res *runtimeapi.LinuxContainerResources
}

func newRecord() *record {
	return &record{kills: map[string]kill{}, message: map[string]string{}, waits: map[string]string{}}
}

// facts returns the actions for s. s is the state before the actions.
func (r *record) facts(s *State) judge.Facts {
	f := judge.Facts{"sandbox": r.sandbox}
	if r.stopPod {
		f["stop pod"] = "yes"
	}
	r.startFacts(f)
	if !r.stopPod {
		for id, k := range r.kills {
			f["kill "+id] = fmt.Sprintf("%s (%ds)", k.message, k.grace)
		}
	}
	for _, id := range r.removes {
		f["remove "+id] = "yes"
	}
	if r.restartAll {
		f["restart all"] = r.askersLast(s)
	}
	for name, text := range r.waits {
		f["wait "+name] = text
	}
	if !r.retry.IsZero() {
		f["retry"] = r.retry.Sub(s.Now).Round(time.Second).String()
	}
	r.updateFacts(f, s)
	for _, id := range r.misnamed {
		f["misnamed "+id] = "yes"
	}
	return f
}

func (r *record) startFacts(f judge.Facts) {
	var order []string
	for _, st := range r.starts {
		order = append(order, st.name)
		f["start "+st.name] = fmt.Sprintf("attempt %d", st.attempt)
		if st.id != "" {
			f["start "+st.name] += ", made before as " + st.id
		}
	}
	if len(order) > 1 {
		f["start order"] = strings.Join(order, " ")
	}
}

// askersLast reports whether the containers that requested a restart of all are removed last.
// The order of the other removals is arbitrary.
func (r *record) askersLast(s *State) string {
	asker := false
	for _, id := range r.removes {
		c := s.container(id)
		if asker && !asks(s, c) {
			return "begun by the containers that asked for it"
		}
		asker = asker || asks(s, c) && s.isAsker(c)
	}
	return "yes"
}

// isAsker reports whether c is the newest instance of its name on both sides: by creation
// time, and by restart count. On our side, an instance whose start was interrupted has not
// ended.
func (s *State) isAsker(c *Container) bool {
	return s.here(c.Name) == c && !brokenOff(c) &&
		!slices.ContainsFunc(s.Containers, func(other *Container) bool { return other.Name == c.Name && other.Attempt > c.Attempt })
}

// asks reports whether a restart rule of the terminated container c restarts all containers.
func asks(s *State, c *Container) bool {
	spec, _ := s.spec(c.Name)
	if spec == nil || c.State != exited {
		return false
	}
	for _, rule := range spec.RestartPolicyRules {
		in := slices.Contains(rule.ExitCodes.Values, c.Code)
		if in == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}
	}
	return false
}
