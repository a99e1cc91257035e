package prober

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oracle evaluates the thresholds by their definition: after each outcome, it checks the
// last n outcomes of the container.
func oracle(k Kind, outcomes []Result, t thresholds) (result Result, hold bool) {
	result = initialResult(k)
	for i := range outcomes {
		for _, r := range []Result{Success, Failure} {
			n := int(t.of(r))
			same := i+1 >= n
			for j := max(0, i+1-n); j <= i; j++ {
				same = same && outcomes[j] == r
			}
			if same {
				result = r
				if k == Startup || k == Liveness && r == Failure {
					return result, true
				}
			}
		}
	}
	return result, false
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	const s, f = Success, Failure
	for name, c := range map[string]struct {
		kind     Kind
		limits   thresholds
		outcomes []Result
		result   Result
		hold     bool
	}{
		"liveness is Success initially":                {Liveness, thresholds{1, 3}, nil, Success, false},
		"readiness is Failure initially":               {Readiness, thresholds{1, 3}, nil, Failure, false},
		"startup is Unknown initially":                 {Startup, thresholds{1, 3}, nil, Unknown, false},
		"two failures of three change nothing":         {Liveness, thresholds{1, 3}, []Result{s, f, f}, Success, false},
		"three failures are final for liveness":        {Liveness, thresholds{1, 3}, []Result{s, f, f, f}, Failure, true},
		"a success resets the failures":                {Liveness, thresholds{1, 3}, []Result{f, f, s, f, f}, Success, false},
		"outcomes after a final result are ignored":    {Liveness, thresholds{1, 1}, []Result{f, s}, Failure, true},
		"readiness needs its successes":                {Readiness, thresholds{3, 1}, []Result{s, s}, Failure, false},
		"readiness reaches its success threshold":      {Readiness, thresholds{3, 1}, []Result{s, s, s}, Success, false},
		"readiness comes back":                         {Readiness, thresholds{1, 1}, []Result{s, f, s}, Success, false},
		"startup ends by success":                      {Startup, thresholds{1, 3}, []Result{f, f, s}, Success, true},
		"startup ends by failure":                      {Startup, thresholds{1, 3}, []Result{f, f, f}, Failure, true},
		"thresholds below 1 count as 1":                {Readiness, thresholds{-1, 0}, []Result{s}, Success, false},
		"a failure of the initial result is no change": {Readiness, thresholds{1, 1}, []Result{f}, Failure, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := count{result: initialResult(c.kind)}
			for _, o := range c.outcomes {
				k.observe(c.kind, o, c.limits)
			}
			require.Equal(t, c.result, k.result)
			require.Equal(t, c.hold, k.final)
		})
	}
}

func FuzzThresholds(f *testing.F) {
	f.Add(uint8(0), int8(1), int8(3), []byte{1, 0, 0, 0})
	f.Add(uint8(1), int8(3), int8(1), []byte{1, 1, 1, 0, 1})
	f.Add(uint8(2), int8(0), int8(2), []byte{0, 1, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, kind uint8, success, failure int8, data []byte) {
		k, limits := Kind(kind%3), thresholds{success: int32(success), failure: int32(failure)}
		c := count{result: initialResult(k)}
		var outcomes []Result
		for _, b := range data[:min(len(data), 64)] {
			outcome := Failure
			if b&1 == 1 {
				outcome = Success
			}
			outcomes = append(outcomes, outcome)
			before := c
			reached := c.observe(k, outcome, limits)
			result, hold := oracle(k, outcomes, limits)
			require.Equal(t, result, c.result, "%s %v %+v", k, outcomes, limits)
			require.Equal(t, hold, c.final)
			require.False(t, reached && c.result != outcome, "the result differs from the outcome that reached the threshold")
			require.False(t, !reached && c.result != before.result, "the result changed before the threshold was reached")
		}
	})
}

// The actions for a container in each state.
func TestPlan(t *testing.T) {
	t.Parallel()
	running := Target{ID: "a", State: Running}
	for name, c := range map[string]struct {
		facts facts
		want  action
	}{
		"unknown container":                            {facts{}, poll},
		"the pod has ended":                            {facts{known: true, target: Target{Ended: true}}, drop},
		"there is no container yet":                    {facts{known: true}, poll},
		"the container is waiting":                     {facts{known: true, target: Target{ID: "a"}}, poll},
		"the container runs":                           {facts{known: true, target: running, kind: Liveness, started: true}, proceed},
		"the container runs, within the initial delay": {facts{known: true, target: running, kind: Liveness, started: true, eligible: time.Unix(0, 0)}, wait},
		"liveness waits for startup":                   {facts{known: true, target: running, kind: Liveness}, idle},
		"readiness waits for startup":                  {facts{known: true, target: running, kind: Readiness}, idle},
		"the startup probe runs before startup":        {facts{known: true, target: running, kind: Startup}, proceed},
		"the startup probe does not run after startup": {facts{known: true, target: running, kind: Startup, started: true}, idle},
		"liveness on hold":                             {facts{known: true, target: running, kind: Liveness, started: true, final: true}, idle},
		"liveness in termination":                      {facts{known: true, target: running, kind: Liveness, stopping: true}, drop},
		"startup in termination":                       {facts{known: true, target: running, kind: Startup, stopping: true}, drop},
		"readiness in termination":                     {facts{known: true, target: running, kind: Readiness, started: true, stopping: true}, proceed},
		"the container has exited":                     {facts{known: true, target: Target{ID: "a", State: Exited}}, poll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, plan(c.facts))
		})
	}
}
