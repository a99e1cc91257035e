package containergc_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
)

// TestCollect runs the scripts in testdata/collect on a node in memory. Each script starts
// with its policy. The commands:
//
//	policy [min-age=1h] [per-pod=1] [total=-1]
//	run|die|create web/app#0 ...   a container that is running, exited, or only created
//	end web                        the newest sandbox and its containers stop
//	state web gone|ended|evicted|here
//	sources ready=false            pod sources are not ready
//	fail RemoveContainer [ns/web/app]     fails with the command's input as the error;
//	                               without an object, once
//	heal RemoveContainer
//	advance 1m
//	collect, delete-all            a pass; shows the calls, the failures and the remaining objects
func TestCollect(t *testing.T) {
	datadriven.Walk(t, "testdata/collect", func(t *testing.T, path string) {
		t.Helper()
		s := &script{bed: newBed(t, func(c *containergc.Config) { c.Workers = 1 })}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			return s.play(t, d)
		})
	})
}

// script is a node and its manager, as configured by a script.
type script struct {
	*bed
	m    *containergc.Manager
	seen int // number of calls already shown
}

func (s *script) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "policy":
		s.cfg.Policy = newInput(t, d).Policy
		s.m = s.manager()
	case "run", "die", "create":
		for _, arg := range d.CmdArgs {
			pod, rest, _ := strings.Cut(arg.Key, "/")
			name, n := numbered(t, rest)
			id := s.create(pod, name, n)
			if d.Cmd != "create" {
				require.NoError(t, s.StartContainer(t.Context(), id))
			}
			if d.Cmd == "die" {
				require.NoError(t, s.Kill(id, 1))
			}
		}
	case "end":
		pod := d.CmdArgs[0].Key
		require.NoError(t, s.KillSandbox(s.boxes[pod]))
		delete(s.boxes, pod)
	case "state":
		s.set(d.CmdArgs[0].Key, d.CmdArgs[1].Key)
	case "sources":
		d.ScanArgs(t, "ready", &s.ready)
	case "fail":
		fault := fakecri.Fault{Err: errors.New(strings.TrimSpace(d.Input))}
		if len(d.CmdArgs) > 1 {
			fault.Object = d.CmdArgs[1].Key
		} else {
			fault.Times = 1 // the show command also lists
		}
		require.NoError(t, s.Fail(d.CmdArgs[0].Key, fault))
	case "heal":
		s.ClearFaults(d.CmdArgs[0].Key)
	case "advance":
		s.clock.Step(duration(t, d.CmdArgs[0].Key))
	case "collect":
		_, err := s.m.Collect(t.Context())
		return s.show(err)
	case "delete-all":
		return s.show(s.m.DeleteAllUnusedContainers(t.Context()))
	default:
		d.Fatalf(t, "no such command")
	}
	return ""
}

// show prints the result of a pass.
func (s *script) show(err error) string {
	var b strings.Builder
	calls := s.Calls()
	for _, c := range calls[min(s.seen, len(calls)):] {
		if strings.HasPrefix(c.Method, "Remove") || strings.HasPrefix(c.Method, "Stop") || strings.HasPrefix(c.Method, "List") || c.Method == "ContainerStatus" {
			fmt.Fprintln(&b, strings.TrimSpace(c.String()))
		}
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			text, _, _ := strings.Cut(line, " (") // IDs are random
			_, cause, _ := strings.Cut(line, "): ")
			fmt.Fprintln(&b, "error:", strings.TrimSpace(text+" "+cause))
		}
	}
	fmt.Fprintf(&b, "left: %s\n", strings.Join(s.left(), " "))
	s.seen = len(s.Calls())
	return b.String()
}

// TestSnapshot_ConversionsLoseNothing checks that a container converted from a list entry and a
// container converted from a status are equal for every rule.
func TestSnapshot_ConversionsLoseNothing(t *testing.T) {
	b := newBed(t)
	id := b.dead("web", "app", 3)
	list, err := b.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	status, err := b.ContainerStatus(t.Context(), id, false)
	require.NoError(t, err)
	listed, asked := containergc.ContainerFromList(list[0]), containergc.ContainerFromStatus(status.GetStatus(), b.boxes["web"])
	require.False(t, asked.FinishedAt.IsZero())
	require.True(t, listed.FinishedAt.IsZero(), "list entries have no exit times")
	asked.FinishedAt = listed.FinishedAt
	require.Equal(t, listed, asked)
	require.Equal(t, types.UID("web"), listed.PodUID)
	require.Equal(t, uint32(3), listed.Attempt)

	boxes, err := b.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	box, err := b.PodSandboxStatus(t.Context(), b.boxes["web"], false)
	require.NoError(t, err)
	require.Equal(t, containergc.SandboxFromList(boxes[0]), containergc.SandboxFromStatus(box.GetStatus()))

	for _, nothing := range []containergc.Container{containergc.ContainerFromList(nil), containergc.ContainerFromStatus(nil, "")} {
		require.True(t, nothing.CreatedAt.IsZero())
		require.Empty(t, nothing.PodUID)
	}
	require.True(t, containergc.SandboxFromList(nil).CreatedAt.IsZero())
	require.True(t, containergc.SandboxFromStatus(nil).CreatedAt.IsZero())
}
