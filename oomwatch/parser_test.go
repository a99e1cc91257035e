package oomwatch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/oomwatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestParser passes the kernel's lines of each case to a Parser and prints the kills. The
// line "quiet" stands for a moment without lines, "flush" for the end.
func TestParser(t *testing.T) {
	datadriven.Walk(t, "testdata/parser", func(t *testing.T, path string) {
		t.Helper()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			require.Equal(t, "feed", d.Cmd)
			var parser oomwatch.Parser
			var out strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				if line == "flush" {
					for _, kill := range parser.Flush() {
						show(&out, kill)
					}
					continue
				}
				if line == "quiet" {
					if kill, ok := parser.FlushLast(); ok {
						show(&out, kill)
					}
					continue
				}
				r, err := oomwatch.ParseRecord([]byte(line))
				if err != nil {
					fmt.Fprintf(&out, "skipped: %v\n", err)
					continue
				}
				if !r.Kernel {
					fmt.Fprintf(&out, "skipped: record %d is not the kernel's\n", r.Sequence)
				}
				if kill, ok := parser.Feed(r, time.Unix(0, 0).UTC()); ok {
					show(&out, kill)
				}
			}
			require.False(t, parser.Open())
			if n := parser.NoVictim; n > 0 {
				fmt.Fprintf(&out, "killed nobody: %d\n", n)
			}
			return out.String()
		})
	})
}

func show(out *strings.Builder, kill oomwatch.Kill) {
	fmt.Fprintln(out, kill.String())
	kill.Time = time.Time{}
	victims := append([]oomwatch.Victim{kill.Victim}, kill.Victims...)
	fmt.Fprintf(out, "  %s, from record %d\n", kill.Constraint, kill.Sequence)
	for i, v := range victims {
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte(err.Error())
		}
		fmt.Fprintf(out, "  %s%s\n", map[bool]string{true: "", false: "also "}[i == 0], b)
	}
}

func TestParseRecord_Malformed(t *testing.T) {
	for _, line := range []string{
		"", ";", "6", "6,", "6,1,2", "6,1,2,-", "x,1,2,-;text", "6,x,2,-;text", "6,1,x,-;text", "6,,2,-;t", ",1,2,-;t",
		"-6,1,2,-;t", "99999999999999999999,1,2,-;t", " SUBSYSTEM=memory",
	} {
		_, err := oomwatch.ParseRecord([]byte(line))
		require.Error(t, err, "%q", line)
	}
}

func TestParseRecord_SkipsTheDictionary(t *testing.T) {
	r, err := oomwatch.ParseRecord([]byte("12,357,9927964,-,caller=T1;some; text, more\n SUBSYSTEM=pci\n DEVICE=+pci\n"))
	require.NoError(t, err)
	require.Equal(t, oomwatch.Record{Sequence: 357, SinceBoot: 9927964 * time.Microsecond, Text: []byte("some; text, more")}, r)

	r, err = oomwatch.ParseRecord([]byte("7,1,0,c;"))
	require.NoError(t, err)
	require.True(t, r.Kernel)
	require.Empty(t, r.Text)
}

func TestParser_DropsTheOldestOfTooManyChoices(t *testing.T) {
	var parser oomwatch.Parser
	for i := range 1000 {
		text := fmt.Appendf(nil, "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=x,pid=%d,uid=0", i+1)
		// One record is missing between each two records.
		_, told := parser.Feed(oomwatch.Record{Sequence: 2 * uint64(i+1), Kernel: true, Text: text}, time.Time{})
		require.False(t, told)
	}
	require.Len(t, parser.Flush(), 63, "the last choice may still result in a kill")
}

// FuzzParser checks that no line causes a panic or prevents the parser from reporting the
// next kill.
func FuzzParser(f *testing.F) {
	f.Add("6,466,11691425,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=grp,mems_allowed=0,oom_memcg=/grp,task_memcg=/grp,task=exe,pid=111,uid=0\n" +
		"3,467,11691639,-;Memory cgroup out of memory: Killed process 111 (exe) total-vm:1269212kB, anon-rss:43980kB\n" +
		"6,468,11692312,-;Tasks in /grp are going to be killed due to memory.oom.group set")
	f.Add("6,2,2,-;Task in /a killed as a result of limit of /a\n4,3,3,-;Out of memory and no killable processes...")
	f.Add("3,10,10,-;Killed process 4242 (java), UID 1000, total-vm:210064kB")
	f.Add("3,10,10,-;Out of memory: Killed process -1 (\\x")
	f.Fuzz(func(t *testing.T, log string) {
		var parser oomwatch.Parser
		var told []oomwatch.Kill
		feed := func(line string) {
			r, err := oomwatch.ParseRecord([]byte(line))
			if err != nil {
				return
			}
			if kill, ok := parser.Feed(r, time.Time{}); ok {
				told = append(told, kill)
			}
		}
		for line := range strings.SplitSeq(log, "\n") {
			feed(line)
		}
		told = append(told, parser.Flush()...)
		for _, kill := range told {
			require.Positive(t, kill.Kills)
			require.True(t, kill.Victims == nil || kill.Kind == oomwatch.Group)
		}
		told = nil
		feed("6,5,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/b,task_memcg=/b/c,task=exe,pid=4,uid=9")
		feed("3,6,6,-;Memory cgroup out of memory: Killed process 4 (exe) total-vm:8kB, anon-rss:4kB")
		told = append(told, parser.Flush()...)
		require.Len(t, told, 1)
		require.Equal(t, "/b/c", told[0].VictimCgroup)
		require.Equal(t, oomwatch.Victim{Process: "exe", PID: 4, UID: 9, TotalVMBytes: 8 << 10, AnonRSSBytes: 4 << 10}, told[0].Victim)
	})
}
