package oomwatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// Each case is a log that the kubelet's watcher gets wrong. The name of the case is the
// error. A separate test covers an overrun, at which the kubelet's watcher stops.
func TestParser_LogsThatTheKubeletGetsWrong(t *testing.T) {
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
		"a kill for the machine, whose victim's cgroup is lost": {
			[]string{
				"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=" + pod + "/a,task=exe,pid=1,uid=0",
				strings.Replace(dies(1), "Memory cgroup out", "Out", 1),
			},
			[]string{`system kill of 1: "exe" (1) in ` + pod + "/a at the limit of /"},
		},
		"a group of three, of which one is reported": {
			lines(one, []string{"Tasks in " + pod + "/a are going to be killed due to memory.oom.group set", dies(3), dies(4), dies(1)}),
			[]string{`group kill of 3: "exe" (1) in ` + pod + "/a at the limit of " + pod + "/a"},
		},
		"a kill without a dump, which is not reported": {
			[]string{dies(1)},
			[]string{`cgroup kill of 1: "exe" (1)`},
		},
		"a dump without a kill, which is confused with the next": {
			lines(one[:2], []string{"Out of memory and no killable processes..."}, two),
			[]string{`cgroup kill of 1: "exe" (2) in ` + pod + "/b at the limit of " + pod + "/b"},
		},
		"two interleaved dumps, of which the second is lost": {
			[]string{one[0], two[0], one[1], one[2], two[1], two[2], two[3], one[3]},
			[]string{
				`cgroup kill of 1: "exe" (2) in ` + pod + "/b at the limit of " + pod + "/b",
				`cgroup kill of 1: "exe" (1) in ` + pod + "/a at the limit of " + pod + "/a",
			},
		},
		"a kill at a pod's limit, which is not reported": {
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
	t.Run("a line that a process wrote, which the kubelet trusts", func(t *testing.T) {
		bubble(t, func(n *node) {
			for _, line := range one {
				n.log.write(11, line)
			}
			n.pass(time.Minute)
			require.Empty(n, n.told())
		})
	})
	t.Run("everything in the log, which the kubelet reports again when it starts", func(t *testing.T) {
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
