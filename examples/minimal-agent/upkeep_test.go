package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEmbeddedRuntimesDiskIsItsOwn(t *testing.T) {
	t.Parallel()
	r := start(t, "--eviction-hard", "nodefs.available<100Pi") // no machine has as much, and the made-up one neither
	await(t, "pressure", func() bool {
		lines, _ := r.printed()
		for _, l := range lines {
			if len(l) > 13 && l[13:] == "node node1 is short: [DiskPressure]" {
				return true
			}
		}
		return false
	})
	await(t, "health", func() bool { // which asks the runtime first
		code, _ := r.get(t, "/healthz")
		return code == http.StatusOK
	})
	require.NoError(t, r.stop())
}
