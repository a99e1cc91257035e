//go:build race

package agent_test

import "time"

// dayLength is the simulated time of TestAgent_SimulatedDayIsDeterministic. Under the race
// detector a day takes minutes.
const dayLength = 3 * time.Hour
