package stats

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

func TestLayoutOf(t *testing.T) {
	t.Parallel()
	a, b, c := fsID{dev: 1}, fsID{dev: 2}, fsID{source: "/dev/sdc"}
	tests := map[string]struct {
		node, image, container fsID
		want                   eviction.Layout
	}{
		"one filesystem for all":                        {a, a, a, eviction.SingleFS},
		"a second filesystem for images and containers": {a, b, b, eviction.DedicatedImageFS},
		"only images on a second filesystem":            {a, b, a, eviction.SplitFS},
		"only containers on a second filesystem":        {a, a, b, eviction.UnknownLayout},
		"three filesystems":                             {a, b, c, eviction.UnknownLayout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := layoutOf(tt.node, tt.image, tt.container)
			require.Equal(t, tt.want, got)
			if tt.want == eviction.UnknownLayout {
				require.ErrorIs(t, err, errLayout)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestDiskLevel(t *testing.T) {
	t.Parallel()
	const mebi = 1 << 20
	var l diskLevel
	require.False(t, l.grown(known(100*mebi), known(5000)), "without a previous figure, there is no growth")
	require.False(t, l.grown(known(110*mebi), known(5999)), "growth below the limit")
	require.True(t, l.grown(known(116*mebi), known(5999)), "growth above the limit")
	require.False(t, l.grown(known(116*mebi), known(5999)), "no growth since then")
	require.True(t, l.grown(known(116*mebi), known(6999)), "inodes")
	require.False(t, l.grown(known(50*mebi), known(9)), "smaller than before")
	require.False(t, l.grown(value{}, value{}), "an unknown figure is not growth")
	require.True(t, l.grown(known(70*mebi), value{}), "growth relative to the smaller figure")
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	pods := map[types.UID][]string{"a": nil, "b": nil, "c": nil}
	queue := enqueue(nil, pods, []types.UID{"b", "c"})
	require.Len(t, queue, 2)
	delete(pods, "b")
	queue = enqueue(queue, pods, []types.UID{"a", "c"})
	require.Len(t, queue, 2)
	require.Equal(t, types.UID("c"), queue[0].uid, "the pod that waits longest must come first")
	require.Equal(t, types.UID("a"), queue[1].uid)
}
