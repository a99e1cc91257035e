package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// hookCommands records what is run in containers.
type hookCommands struct{ run [][]string }

func (c *hookCommands) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) (stdout, stderr []byte, err error) {
	c.run = append(c.run, append([]string{id}, cmd...))
	return nil, nil, nil
}

// TestPreStopOfAContainerInAnUnknownState runs before the collection stops it.
func TestPreStopOfAContainerInAnUnknownState(t *testing.T) {
	t.Parallel()
	c := &hookCommands{}
	hooks, err := lifecycle.NewHookRunner(lifecycle.HookConfig{Exec: c})
	require.NoError(t, err)
	a := &agent{cache: podcache.New(), supplies: supplies{hooks: hooks}}
	container := containergc.Container{ID: "id", PodUID: "u", Namespace: "ns", Pod: "web", Name: "app", StopGrace: time.Minute, PreStop: `{"exec":{"command":["leave","-now"]}}`}
	require.NoError(t, a.preStop(t.Context(), container))
	require.Equal(t, [][]string{{"id", "leave", "-now"}}, c.run)
	container.PreStop = "{"
	require.ErrorContains(t, a.preStop(t.Context(), container), "preStop hook of container app")
}
