package containergc_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// now is the current time in all tests of decisions.
func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// pods is the pods that are not running: gone, ended (but not deleted), or evicted and still
// terminating.
type pods map[types.UID]string

func (p pods) ShouldPodContentBeRemoved(uid types.UID) bool {
	return p[uid] == "gone" || p[uid] == "evicted"
}

func (p pods) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return p[uid] == "gone" || p[uid] == "ended"
}

// TestPlan reads cases from testdata/plan. A case is
//
//	plan [min-age=1h] [per-pod=1] [total=-1] [all-unused] [json]
//	pod web gone|ended|evicted              all other pods exist and are running
//	box web#1 [ready] [made=1h]             a sandbox; its pod's UID is the name
//	web/app#2 exited [made=2h] [ended=1h] [in=web#1] [foreign] [retry=1m]
//	folder web                              a pod's log directory, with the following entries
//	logs app#0                              the logs of one container
//	link web/app#2                          a dead link of a container, or of "x"
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		t.Helper()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			require.Equal(t, "plan", d.Cmd)
			plan := containergc.PlanRemovals(newInput(t, d))
			if d.HasArg("json") {
				text, err := json.MarshalIndent(plan, "", " ")
				require.NoError(t, err)
				return string(text) + "\n"
			}
			return plan.String()
		})
	})
}

func newInput(t *testing.T, d *datadriven.TestData) containergc.Input {
	t.Helper()
	all := pods{}
	in := containergc.Input{
		Now: now(), AllUnused: d.HasArg("all-unused"), Pods: all, RetryAt: map[string]time.Time{},
		Owned: func(o containergc.Object) bool {
			return o.Labels["foreign"] == "" && !strings.HasPrefix(o.Pod, "foreign")
		},
	}
	number := func(name string) *int {
		if !d.HasArg(name) {
			return nil
		}
		var n int
		d.ScanArgs(t, name, &n)
		return &n
	}
	if d.HasArg("min-age") {
		var text string
		d.ScanArgs(t, "min-age", &text)
		in.Policy.MinAge = duration(t, text)
	}
	in.Policy.MaxPerPodContainer, in.Policy.MaxContainers = number("per-pod"), number("total")
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		opts := options(words[2:])
		switch words[0] {
		case "pod":
			all[types.UID(words[1])] = words[2]
		case "box":
			in.Snapshot.Sandboxes = append(in.Snapshot.Sandboxes, newBox(t, words[1], opts))
		case "folder":
			in.Folders = append(in.Folders, containergc.LogFolder{
				Folder: "ns_" + words[1] + "_" + words[1], Namespace: "ns", Pod: base(words[1]), UID: types.UID(words[1]),
			})
		case "logs":
			name, n := numbered(t, words[1])
			f := &in.Folders[len(in.Folders)-1]
			f.Attempts = append(f.Attempts, containergc.AttemptLogs{
				Container: name, Attempt: n,
				Files: []string{f.Folder + "/" + name + "/" + strconv.Itoa(int(n)) + ".log"},
			})
		case "link":
			in.Links = append(in.Links, containergc.LogLink{Name: words[1] + ".log", ContainerID: words[1]})
		default:
			c := newContainer(t, words[0], words[1], opts)
			if delay, ok := opts["retry"]; ok {
				in.RetryAt[c.ID] = now().Add(duration(t, delay))
			}
			in.Snapshot.Containers = append(in.Snapshot.Containers, c)
		}
	}
	return in
}

// base returns a pod's name without the suffix that distinguishes pods of the same name.
func base(uid string) string { name, _, _ := strings.Cut(uid, "."); return name }

func options(words []string) map[string]string {
	opts := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		opts[key] = value
	}
	return opts
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

func ago(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	return now().Add(-duration(t, text))
}

func numbered(t *testing.T, text string) (name string, n uint32) {
	t.Helper()
	name, number, ok := strings.Cut(text, "#")
	require.True(t, ok, text)
	v, err := strconv.ParseUint(number, 10, 32)
	require.NoError(t, err)
	return name, uint32(v)
}

func newBox(t *testing.T, text string, opts map[string]string) containergc.Sandbox {
	t.Helper()
	name, n := numbered(t, text)
	b := containergc.Sandbox{
		ID: text, PodUID: types.UID(name), Namespace: "ns", Pod: base(name), Attempt: n,
		CreatedAt: ago(t, opts["made"]),
	}
	_, b.Ready = opts["ready"]
	if _, ok := opts["foreign"]; ok {
		b.Labels = map[string]string{"foreign": "true"}
	}
	if _, ok := opts["no-pod"]; ok {
		b.PodUID = ""
	}
	return b
}

func newContainer(t *testing.T, text, state string, opts map[string]string) containergc.Container {
	t.Helper()
	pod, rest, _ := strings.Cut(text, "/")
	name, n := numbered(t, rest)
	states := map[string]runtimeapi.ContainerState{
		"created": runtimeapi.ContainerState_CONTAINER_CREATED, "running": runtimeapi.ContainerState_CONTAINER_RUNNING,
		"exited": runtimeapi.ContainerState_CONTAINER_EXITED, "unknown": runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		"new": 77,
	}
	require.Contains(t, states, state)
	c := containergc.Container{
		ID: text, SandboxID: opts["in"], PodUID: types.UID(pod), Namespace: "ns", Pod: base(pod), Name: name, Attempt: n,
		State: states[state], CreatedAt: ago(t, opts["made"]), FinishedAt: ago(t, opts["ended"]),
	}
	if _, ok := opts["foreign"]; ok {
		c.Labels = map[string]string{"foreign": "true"}
	}
	if _, ok := opts["no-pod"]; ok {
		c.PodUID = ""
	}
	if id, ok := opts["id"]; ok {
		c.ID = id
	}
	return c
}

func TestPlan_StringPrintsOneLinePerObject(t *testing.T) {
	t.Parallel()
	const hostile = "x\nremove forged\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"
	plan := containergc.Plan{}
	for _, kind := range []containergc.Kind{containergc.KindContainer, containergc.KindSandbox, containergc.KindLogs, containergc.KindLogLink} {
		o := containergc.Object{Kind: kind, ID: hostile, Namespace: hostile, Pod: hostile, Name: hostile}
		plan.Decisions = append(plan.Decisions, containergc.Decision{Object: o, Reason: containergc.OverPerPod})
	}
	text := plan.String()
	require.Equal(t, printable.Lines(text, ""), text)
	require.Equal(t, len(plan.Decisions), strings.Count("\n"+text, "\nkeep   "), text)
	require.Equal(t, len(plan.Decisions), strings.Count(text, "\n"), text)
}
