//go:build !race

package agent_test

import "time"

// dayLength is how long TestAgent_ADayRepeatsItself lives.
const dayLength = 24 * time.Hour
