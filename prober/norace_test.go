//go:build !race

package prober_test

// raceEnabled says that allocations are not those of a normal build.
const raceEnabled = false
