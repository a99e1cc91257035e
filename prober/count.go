package prober

// count is the state that thresholds work on. It is that of one container: a new
// one begins with a new count.
type count struct {
	result Result
	// last is the outcome of the last runs of the probe, and run how many in a row had
	// it. Zero run means that there was none.
	last Result
	run  int32
	// hold says that a verdict was reached that ends this container's probing.
	hold bool
}

// initial returns what is said of a container that nothing is known of but that
// it is a new one.
func initial(k Kind) Result {
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

// thresholds are how many equal outcomes in a row make a result.
type thresholds struct{ success, failure int32 }

// of returns the threshold for r, one at least.
func (t thresholds) of(r Result) int32 {
	if r == Success {
		return max(t.success, 1)
	}
	return max(t.failure, 1)
}

// observe counts one outcome, Success or Failure, and says whether with it the
// threshold is reached. A failed liveness probe and a decided startup probe are on
// hold then: the one's container is going to be killed, the other has done its
// work.
func (c *count) observe(k Kind, outcome Result, t thresholds) (reached bool) {
	if c.hold {
		return false
	}
	if c.run == 0 || c.last != outcome {
		c.last, c.run = outcome, 0
	}
	// Beyond the threshold more of the same says nothing.
	limit := t.of(outcome)
	c.run = min(c.run+1, limit)
	if c.run < limit {
		return false
	}
	c.result = outcome
	if k == Startup || k == Liveness && outcome == Failure {
		c.hold, c.run = true, 0
	}
	return true
}
