package oomwatch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// tree is a hierarchy of cgroups made of plain files.
type tree struct {
	*testing.T
	mount string
}

func (f tree) write(cgroup, file, content string) {
	f.Helper()
	dir := filepath.Join(f.mount, cgroup)
	require.NoError(f, os.MkdirAll(dir, 0o755))
	require.NoError(f, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644))
}

// v2 sets the counters of a cgroup: kills in itself and in all below it.
func (f tree) v2(cgroup string, own, subtree int) {
	f.Helper()
	const events = "low 0\nhigh 0\nmax 19\noom 1\noom_kill %d\noom_group_kill 0\n"
	f.write(cgroup, "memory.events.local", fmt.Sprintf(events, own))
	f.write(cgroup, "memory.events", fmt.Sprintf(events, subtree))
}

func (f tree) v1(cgroup string, own int) {
	f.Helper()
	f.write(cgroup, "memory.oom_control", fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", own))
}

// look returns what Look emits, as "cgroup n", or "cgroup group n".
func look(c *oomwatch.Counters) (told []string) {
	c.Look(func(s oomwatch.Observation) {
		told = append(told, strings.Join(strings.Fields(fmt.Sprintf("%s %s %d", s.Kill.VictimCgroup, s.Kill.Kind, s.Kill.Kills)), " "))
	})
	return told
}

func counters(t *testing.T) (tree, *oomwatch.Counters) {
	t.Helper()
	f := tree{t, t.TempDir()}
	f.write("", "cgroup.controllers", "memory\n")
	c, err := oomwatch.NewCounters(oomwatch.CountersConfig{Mount: f.mount, Parent: "/kubepods"})
	require.NoError(t, err)
	return f, c
}

func TestCounters_FirstReadEmitsNothing(t *testing.T) {
	f, c := counters(t)
	f.v2("kubepods", 0, 3)
	f.v2("kubepods/a", 1, 3)
	f.v2("kubepods/a/x", 2, 2)
	require.Empty(t, look(c))
	require.Empty(t, look(c))
	f.v2("kubepods", 0, 5)
	f.v2("kubepods/a", 1, 5)
	f.v2("kubepods/a/x", 4, 4)
	require.Equal(t, []string{"/kubepods/a/x 2"}, look(c))
	require.Empty(t, look(c))
}

// A cgroup that can't be read once, at the first read or later, counts neither as new nor as removed.
func TestCounters_UnreadableCgroupIsReportedLater(t *testing.T) {
	f, c := counters(t)
	f.v2("kubepods", 0, 3)
	f.v2("kubepods/a", 1, 3)
	f.v2("kubepods/a/x", 2, 2)
	for _, file := range []string{"kubepods/a/memory.events", "kubepods/a/memory.events.local"} {
		for range 2 {
			away := filepath.Join(t.TempDir(), "away")
			require.NoError(t, os.Rename(filepath.Join(f.mount, file), away))
			require.NoError(t, os.Mkdir(filepath.Join(f.mount, file), 0o755)) // makes reading an error
			require.Empty(t, look(c))
			require.NoError(t, os.Remove(filepath.Join(f.mount, file)))
			require.NoError(t, os.Rename(away, filepath.Join(f.mount, file)))
			require.Empty(t, look(c), file)
		}
	}
	away := filepath.Join(t.TempDir(), "away")
	require.NoError(t, os.Rename(filepath.Join(f.mount, "kubepods/a/memory.events.local"), away))
	require.NoError(t, os.Mkdir(filepath.Join(f.mount, "kubepods/a/memory.events.local"), 0o755))
	f.v2("kubepods", 0, 4)
	f.v2("kubepods/a/x", 3, 3)
	require.Empty(t, look(c), "the child cannot be read")
	require.NoError(t, os.Remove(filepath.Join(f.mount, "kubepods/a/memory.events.local")))
	f.v2("kubepods/a", 1, 4)
	require.Equal(t, []string{"/kubepods/a/x 1"}, look(c))
	require.Empty(t, look(c))
}

func TestCounters_NewCgroupStartsAtZero(t *testing.T) {
	f, c := counters(t)
	require.Empty(t, look(c), "there are no pods yet")
	f.v2("kubepods", 0, 1)
	f.v2("kubepods/a", 1, 1)
	require.Equal(t, []string{"/kubepods/a 1"}, look(c))
}

func TestCounters_KillsOfARemovedCgroupCountForItsParent(t *testing.T) {
	f, c := counters(t)
	f.v2("kubepods", 0, 0)
	f.v2("kubepods/a", 0, 0)
	f.v2("kubepods/a/x", 0, 0)
	require.Empty(t, look(c))
	f.v2("kubepods", 0, 2)
	f.v2("kubepods/a", 0, 2)
	require.NoError(t, os.RemoveAll(filepath.Join(f.mount, "kubepods/a/x")))
	require.Equal(t, []string{"/kubepods/a 2"}, look(c))
	require.NoError(t, os.RemoveAll(filepath.Join(f.mount, "kubepods/a")))
	require.Empty(t, look(c), "the kills were already reported")
	f.v2("kubepods", 0, 3)
	require.Equal(t, []string{"/kubepods 1"}, look(c))
}

// A process is killed between the reads of the parent and of the child.
func TestCounters_LateParentReportsNothingTwice(t *testing.T) {
	f, c := counters(t)
	f.v2("kubepods", 0, 0)
	f.v2("kubepods/a", 0, 0)
	require.Empty(t, look(c))
	f.v2("kubepods/a", 1, 1)
	require.Equal(t, []string{"/kubepods/a 1"}, look(c))
	f.v2("kubepods", 0, 1)
	require.Empty(t, look(c))
}

func TestCounters_GroupKillIsOneKill(t *testing.T) {
	f, c := counters(t)
	f.v2("kubepods/a", 0, 0)
	require.Empty(t, look(c))
	f.write("kubepods/a", "memory.events.local", "oom 1\noom_kill 4\noom_group_kill 1\n")
	require.Equal(t, []string{"/kubepods/a group 3"}, look(c))
}

func TestCounters_RecreatedCgroupStartsAtZero(t *testing.T) {
	f, c := counters(t)
	f.v2("kubepods/a", 5, 5)
	require.Empty(t, look(c))
	f.v2("kubepods/a", 1, 1)
	require.Equal(t, []string{"/kubepods/a 1"}, look(c))
}

func TestCounters_CgroupV1AndEmptyFiles(t *testing.T) {
	f, c := counters(t)
	require.NoError(t, os.Remove(filepath.Join(f.mount, "cgroup.controllers")))
	f.v1("kubepods", 0)
	f.v1("kubepods/a", 0)
	f.write("kubepods/b", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n") // before 4.13
	f.write("kubepods/c", "memory.oom_control", "oom_kill\noom_kill x\n\x00")
	require.Empty(t, look(c))
	f.v1("kubepods/a", 2)
	require.Equal(t, []string{"/kubepods/a 2"}, look(c))
}

func TestCounters_RequireAMemoryController(t *testing.T) {
	f, c := counters(t)
	require.NoError(t, os.Remove(filepath.Join(f.mount, "cgroup.controllers")))
	require.ErrorContains(t, c.Watch(t.Context(), oomwatch.Position{}, func(oomwatch.Observation) {}), "no memory controller in ")
}

// The cgroups are not read while the kernel's count of all kills does not increase.
func TestCounters_AreReadWhenTheKernelHasKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tree{t, t.TempDir()}
		c, err := oomwatch.NewCounters(oomwatch.CountersConfig{
			Mount: f.mount, Parent: "/kubepods", VMStat: filepath.Join(f.mount, "vmstat"),
		})
		require.NoError(t, err)
		f.write("", "cgroup.controllers", "memory\n")
		f.write("", "vmstat", "nr_free_pages 1\noom_kill 7\nnuma_hit 3\n")
		f.v2("kubepods/a", 0, 0)
		ctx, cancel := context.WithCancel(t.Context())
		done, told, looks := make(chan error, 1), []int(nil), 0
		go func() {
			done <- c.Watch(ctx, oomwatch.Position{}, func(s oomwatch.Observation) {
				if s.Kill.Kills > 0 {
					told = append(told, s.Kill.Kills)
				} else {
					looks++
				}
			})
		}()
		step := func(kills int, file string) []int {
			if file == "vmstat" {
				f.write("", "vmstat", fmt.Sprintf("nr_free_pages 1\noom_kill %d\nnuma_hit 3\n", kills))
			} else {
				f.v2("kubepods/a", kills, kills)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			defer func() { told = nil }()
			return told
		}
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, looks, "the cgroups must be read at the start")
		require.Empty(t, told)
		require.Empty(t, step(1, "cgroup"), "no kill must be reported while the kernel's count does not increase")
		require.Equal(t, []int{1}, step(8, "vmstat"))
		require.Empty(t, step(9, "vmstat"), "the cgroup's count increases shortly after the kernel's")
		require.Equal(t, []int{1}, step(2, "cgroup"))
		require.NoError(t, os.Remove(filepath.Join(f.mount, "vmstat")))
		require.Equal(t, []int{1}, step(3, "cgroup"), "without the kernel's count, the cgroups must be read every time")
		cancel()
		require.NoError(t, <-done)
	})
}
