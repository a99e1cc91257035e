package logrotate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func playOurs(root string) func(*testing.T, *World) []judge.Facts {
	return func(t *testing.T, w *World) []judge.Facts {
		t.Helper()
		a := &ours{t: t}
		all := play(t, w, root, func(_ *testing.T, n *node) agent {
			n.odd, a.node = true, n
			return a
		})
		for i := range all {
			all[i]["told"] = a.told[i]
		}
		return all
	}
}

// ours is our rotator.
type ours struct {
	t         *testing.T
	node      *node
	rotator   *logrotate.Rotator
	rotations []string
	checked   int
	told      []string // result and observed rotations of each pass
}

func (a *ours) restart() {
	cfg := logrotate.Config{
		Runtime: a.node, PodLogs: a.node.root + "/pods", Policy: logrotate.Policy{MaxSizeBytes: maxSize, MaxFiles: a.node.w.MaxFiles}, Clock: judge.WallClock{Offset: &a.node.offset},
		Observer: logrotate.Observer{
			Rotated: func(r logrotate.Rotation) {
				a.rotations = append(a.rotations, rotationText(r.ContainerID, strings.TrimPrefix(r.Path, a.node.root+"/"), int(r.SizeBytes), r.To, r.Err != nil))
			},
			Checked: func(logrotate.Result, error) { a.checked++ },
		},
	}
	if a.node.w.Known {
		cfg.Running = a.running
	}
	var err error
	a.rotator, err = logrotate.New(cfg)
	require.NoError(a.t, err)
}

// running returns the running containers, some of them twice.
func (a *ours) running(context.Context) (logs []logrotate.Log, err error) {
	if a.node.step.List {
		return nil, errors.New("fault:list")
	}
	for i, c := range a.node.w.Containers {
		if c.Running && !a.node.ended[i] {
			l := logrotate.Log{ContainerID: fmt.Sprint(i), Path: a.node.root + "/" + a.node.w.file(i)}
			logs = append(logs, l, l, logrotate.Log{Path: l.Path})
		}
	}
	return logs, nil
}

func (a *ours) pass(ctx context.Context) error {
	before := descriptors()
	a.rotations, a.checked = nil, 0
	res, err := a.rotator.Rotate(ctx)
	text := toldText(res.Running, res.Rotated, err != nil, a.rotations)
	if a.node.step.List {
		text = fmt.Sprintf("%d running: %v", res.Running, err)
	}
	a.told = append(a.told, fmt.Sprintf("%s; %d checked, %d descriptors", text, a.checked, descriptors()-before))
	return err
}

// descriptors counts the open files of this process.
func descriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // this system has no /proc/self/fd
	}
	return len(open)
}

func rotationText(id, path string, size int, to string, failed bool) string {
	return fmt.Sprintf("%s %s of %d to %q, failed %t", id, path, size, to, failed)
}

// toldText prints the expected or actual report of a pass.
func toldText(running, rotated int, failed bool, rotations []string) string {
	slices.Sort(rotations)
	return fmt.Sprintf("%d running, %d rotated, failed %t: %s", running, rotated, failed, strings.Join(rotations, "; "))
}
