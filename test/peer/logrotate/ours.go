package logrotate

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func playOurs(root string) func(*testing.T, *World) []judge.Facts {
	return func(t *testing.T, w *World) []judge.Facts {
		t.Helper()
		return play(t, w, root, func(t *testing.T, n *node) agent {
			t.Helper()
			return &ours{t: t, node: n}
		})
	}
}

// ours is our rotator.
type ours struct {
	t       *testing.T
	node    *node
	rotator *logrotate.Rotator
}

func (a *ours) restart() {
	var err error
	a.rotator, err = logrotate.New(logrotate.Config{
		Runtime: a.node, PodLogs: a.node.root + "/pods", MaxSizeBytes: maxSize, MaxFiles: a.node.w.MaxFiles, Clock: wall{node: a.node},
	})
	require.NoError(a.t, err)
}

func (a *ours) pass(ctx context.Context) error {
	_, err := a.rotator.Rotate(ctx)
	return err
}
