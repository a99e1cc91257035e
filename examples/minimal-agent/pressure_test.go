package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEmbeddedRuntime_HasItsOwnDisk(t *testing.T) {
	t.Parallel()
	r := start(t, "--eviction-hard", "nodefs.available<100Pi") // more than any machine has, including the simulated one
	await(t, "the node reports pressure", func() bool {
		lines, _ := r.printed()
		for _, l := range lines {
			if len(l) > 13 && l[13:] == "node node1 is under pressure: [DiskPressure]" {
				return true
			}
		}
		return false
	})
	await(t, "the agent is healthy", func() bool { // the first check queries the runtime
		code, _ := r.get(t, "/healthz")
		return code == http.StatusOK
	})
	require.NoError(t, r.stop())
}
