package prober

// count is the state that is compared with the thresholds. When the container is replaced,
// the probe gets a new count.
type count struct {
	result Result
	// last is the outcome of the last counted run, Success or Failure. streak is the number
	// of consecutive counted runs with that outcome, at most the threshold. streak is 0
	// before the first counted run and when the result is final.
	last   Result
	streak int32
	// final means that the result does not change any more for this container.
	final bool
}

// initialResult returns the result for a new container without runs.
func initialResult(k Kind) Result {
	switch k {
	case Readiness:
		return Failure
	case Liveness:
		return Success
	case Startup:
		return Unknown
	default:
		return Unknown
	}
}

// thresholds are the numbers of consecutive equal outcomes after which the outcome becomes
// the result.
type thresholds struct{ success, failure int32 }

// The method of returns the threshold for r, at least 1.
func (t thresholds) of(r Result) int32 {
	if r == Success {
		return max(t.success, 1)
	}
	return max(t.failure, 1)
}

// observe counts one outcome, Success or Failure, and reports whether the outcome reaches
// the threshold. A liveness Failure that reaches the threshold is final, because the
// container will be killed. Any result of a startup probe that reaches the threshold is
// final too.
func (c *count) observe(k Kind, outcome Result, t thresholds) (reached bool) {
	if c.final {
		return false
	}
	if c.streak == 0 || c.last != outcome {
		c.last, c.streak = outcome, 0
	}
	// More equal outcomes than the threshold do not matter.
	limit := t.of(outcome)
	c.streak = min(c.streak+1, limit)
	if c.streak < limit {
		return false
	}
	c.result = outcome
	if k == Startup || k == Liveness && outcome == Failure {
		c.final, c.streak = true, 0
	}
	return true
}
