package imagegc_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// TestGolden runs scripts on a fake node. Commands: node (images, one per line; arguments set
// the policy), use, create, remove, lease, release, advance, fill, fail, heal, detect, plan,
// json, collect, free, delete-unused, images.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/plans", func(t *testing.T, path string) {
		t.Helper()
		var s *session
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			if d.Cmd == "node" {
				s = newSession(t, d)
				return "ok\n"
			}
			s.t = t
			return s.run(d)
		})
	})
}

type session struct {
	*rig
	sandboxes map[string]string // by image
	leases    map[string]func()
	log       strings.Builder
}

func newSession(t *testing.T, d *datadriven.TestData) *session {
	t.Helper()
	s := &session{sandboxes: map[string]string{}, leases: map[string]func(){}}
	s.rig = newRig(t, strings.Split(strings.TrimSpace(d.Input), "\n"), func(c *imagegc.Config) {
		var keep, prefer []string
		for _, arg := range d.CmdArgs {
			value := arg.Vals[0]
			switch arg.Key {
			case "high":
				c.Policy.HighThresholdPercent = new(number(t, value))
			case "low":
				c.Policy.LowThresholdPercent = new(number(t, value))
			case "minAge":
				c.Policy.MinAge = new(duration(t, value))
			case "minUnused":
				c.Policy.MinUnused = duration(t, value)
			case "maxAge":
				c.Policy.MaxAge = duration(t, value)
			case "keep":
				keep = append(keep, value)
			case "prefer":
				prefer = append(prefer, value)
			default:
				t.Fatalf("unknown setting %s", arg.Key)
			}
		}
		c.Preference = byName(keep, prefer)
		c.Observer.Removed = func(i imagegc.Image, reason imagegc.Reason, _ time.Duration, err error) {
			fmt.Fprintf(&s.log, "remove %s for %s", shortName(i.Tags), reason)
			if err != nil {
				fmt.Fprint(&s.log, ": ", err)
			}
			fmt.Fprintln(&s.log)
		}
		c.Observer.Measured = func(u imagegc.Usage) { fmt.Fprintf(&s.log, "measured %d%%\n", u.Percent()) }
	})
	return s
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

func (s *session) run(d *datadriven.TestData) string {
	s.t.Helper()
	s.log.Reset()
	var arg string
	if len(d.CmdArgs) > 0 {
		arg = d.CmdArgs[0].Key
	}
	var err error
	switch ctx := s.t.Context(); d.Cmd {
	case "use":
		s.use(arg)
	case "create":
		_, s.sandboxes[arg] = s.create(arg, strings.Fields(d.Input)...)
	case "remove":
		err = s.node.RemovePodSandbox(ctx, s.sandboxes[arg])
	case "pull":
		_, err = s.node.PullImage(ctx, &runtimeapi.ImageSpec{Image: arg}, nil, nil)
	case "lease":
		s.leases[arg] = s.Acquire(arg, d.CmdArgs[1].Key, duration(s.t, d.CmdArgs[2].Key))
	case "release":
		s.leases[arg]()
	case "advance":
		s.clock.Step(duration(s.t, arg))
	case "fill":
		s.fill(uint64(number(s.t, arg)))
	case "fail":
		err = s.node.Fail("RemoveImage", fakecri.Fault{Object: s.id(arg), Err: fmt.Errorf("%s is busy", arg)})
	case "heal":
		s.node.ClearFaults("RemoveImage")
	case "detect":
		err = s.Detect(ctx)
	case "plan":
		var plan imagegc.Plan
		plan, err = s.Plan(ctx)
		fmt.Fprint(&s.log, plan)
	case "collect":
		err = s.collect()
	case "free":
		_, err = s.Free(ctx, uint64(number(s.t, arg))*gib)
	case "delete-unused":
		err = s.DeleteUnusedImages(ctx)
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
	if err != nil {
		fmt.Fprintln(&s.log, "error:", err)
	}
	for _, e := range s.events {
		fmt.Fprintln(&s.log, "event:", e)
	}
	for _, ids := range s.hooks {
		fmt.Fprintln(&s.log, "remaining:", s.names(ids))
	}
	s.events, s.hooks = nil, nil
	if s.log.Len() == 0 {
		return "ok\n"
	}
	return s.log.String()
}

// names returns the names of the existing images.
func (s *session) names(ids []string) string {
	images, err := s.node.ListImages(s.t.Context(), nil)
	require.NoError(s.t, err)
	var names []string
	for _, img := range images {
		if slices.Contains(ids, img.Id) {
			names = append(names, shortName(img.RepoTags))
		}
	}
	return strings.Join(names, " ")
}
