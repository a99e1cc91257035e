//go:build race

package agent_test

import "time"

// dayLength is how long TestAgent_ADayRepeatsItself lives: under the race detector a day takes
// minutes.
const dayLength = 3 * time.Hour
