package host_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// watchCounters calls kill while the Host watches the counters of cgroups below root, and
// returns the cgroups in which it detected kills.
func watchCounters(t *testing.T, source oomwatch.Source, kill func()) (cgroups []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			done <- source.Watch(ctx, oomwatch.Position{}, func(s oomwatch.Observation) {
				if s.Counter {
					cgroups = append(cgroups, s.Kill.VictimCgroup)
				}
			})
		}()
		synctest.Wait()
		kill()
		err = <-done
	})
	return cgroups, err
}

func TestOOM_SourcesAreTheLogAndTheCounters(t *testing.T) {
	var names []string
	for _, source := range local(t, newMachine(t), host.LocalConfig{}).OOM {
		names = append(names, source.Name())
	}
	require.Equal(t, []string{"kmsg", "cgroup"}, names)
}

func TestCounters_OfBothVersionsOfCgroups(t *testing.T) {
	for name, v := range map[string]struct{ folder, file, before, after string }{
		"v2": {"", "memory.events.local", "oom_kill 0\n", "oom_kill 1\n"},
		"v1": {"memory", "memory.oom_control", "oom_kill 0\n", "oom_kill 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			root := newMachine(t)
			cgroups := filepath.Join(root, "sys/fs/cgroup")
			if name == "v1" {
				require.NoError(t, os.Remove(filepath.Join(cgroups, "cgroup.controllers")))
			}
			write(t, filepath.Join(cgroups, v.folder, "memory.usage_in_bytes"), "1\n")
			counter := filepath.Join(cgroups, v.folder, "app", v.file)
			write(t, counter, v.before)
			write(t, filepath.Join(cgroups, v.folder, "app", "memory.events"), v.before)

			source := local(t, root, host.LocalConfig{}).OOM[1]
			require.Equal(t, oomwatch.Position{}, source.Position())
			seen, err := watchCounters(t, source, func() {
				write(t, counter, v.after)
				write(t, filepath.Join(root, "proc/vmstat"), "oom_kill 1\n")
			})
			require.NoError(t, err)
			require.Equal(t, []string{"/app"}, seen)

			// The next Watch does not emit the same kills again.
			seen, err = watchCounters(t, source, func() { write(t, filepath.Join(root, "proc/vmstat"), "oom_kill 2\n") })
			require.NoError(t, err)
			require.Empty(t, seen)
		})
	}
}

func TestCounters_AppearWithTheHierarchy(t *testing.T) {
	root := newMachine(t)
	controllers := filepath.Join(root, "sys/fs/cgroup/cgroup.controllers")
	require.NoError(t, os.Remove(controllers))
	source := local(t, root, host.LocalConfig{}).OOM[1]
	_, err := watchCounters(t, source, func() {})
	require.ErrorContains(t, err, filepath.Join(root, "sys/fs/cgroup/memory"))

	write(t, controllers, "memory\n")
	_, err = watchCounters(t, source, func() {})
	require.NoError(t, err)
}
