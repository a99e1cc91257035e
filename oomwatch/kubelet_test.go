package oomwatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// What the kubelet's watcher makes wrong of each log is in the name of its case; an
// overrun, at which it ends, has a test of its own.
func TestLogsThatTheKubeletGetsWrong(t *testing.T) {
	const pod = "/kubepods/pod8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11"
	one, two := dump(pod+"/a", 1), dump(pod+"/b", 2)
	dies := func(pid int) string { return dump("", pid)[3] }
	lines := func(parts ...[]string) (all []string) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, c := range map[string]struct {
		log  []string
		want []string
	}{
		"the machine, whose victim it loses": {
			[]string{
				"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=" + pod + "/a,task=exe,pid=1,uid=0",
				strings.Replace(dies(1), "Memory cgroup out", "Out", 1),
			},
			[]string{`system kill of 1: "exe" (1) in ` + pod + "/a at the limit of /"},
		},
		"a group of three, of which it tells one": {
			lines(one, []string{"Tasks in " + pod + "/a are going to be killed due to memory.oom.group set", dies(3), dies(4), dies(1)}),
			[]string{`group kill of 3: "exe" (1) in ` + pod + "/a at the limit of " + pod + "/a"},
		},
		"no dump, of which it tells nothing": {
			[]string{dies(1)},
			[]string{`cgroup kill of 1: "exe" (1)`},
		},
		"nobody killed, which it mixes up with the next": {
			lines(one[:2], []string{"Out of memory and no killable processes..."}, two),
			[]string{`cgroup kill of 1: "exe" (2) in ` + pod + "/b at the limit of " + pod + "/b"},
		},
		"two interleaved, of which it loses the second": {
			[]string{one[0], two[0], one[1], one[2], two[1], two[2], two[3], one[3]},
			[]string{
				`cgroup kill of 1: "exe" (2) in ` + pod + "/b at the limit of " + pod + "/b",
				`cgroup kill of 1: "exe" (1) in ` + pod + "/a at the limit of " + pod + "/a",
			},
		},
		"a pod's limit, of which it tells nothing": {
			[]string{strings.Replace(one[2], "oom_memcg="+pod+"/a", "oom_memcg="+pod, 1), one[3]},
			[]string{`cgroup kill of 1: "exe" (1) in ` + pod + "/a at the limit of " + pod},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(n *node) {
				n.log.print(c.log...)
				n.pass(time.Minute)
				var told []string
				for _, kill := range n.told() {
					require.Equal(n, kill.VictimCgroup != "", kill.PodUID != "")
					kill.PodUID = ""
					told = append(told, kill.String())
				}
				require.Equal(n, c.want, told)
			})
		})
	}
	t.Run("a line that a process wrote, which it believes", func(t *testing.T) {
		bubble(t, func(n *node) {
			for _, line := range one {
				n.log.write(11, line)
			}
			n.pass(time.Minute)
			require.Empty(n, n.told())
		})
	})
	t.Run("all that is in the ring, which it tells again when it starts", func(t *testing.T) {
		bubble(t, func(n *node) {
			n.log.print(one...)
			n.pass(time.Second)
			n.stop()
			n.start(n.watcher.Position())
			n.stop()
			n.start(oomwatch.Position{})
			n.pass(time.Minute)
			require.Len(n, n.told(), 1)
		})
	})
}
