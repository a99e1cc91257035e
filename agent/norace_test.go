//go:build !race

package agent_test

import "time"

// dayLength is the simulated time of TestAgent_SimulatedDayIsDeterministic.
const dayLength = 24 * time.Hour
