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
		"one for all":                            {a, a, a, eviction.SingleFS},
		"a second one for images and containers": {a, b, b, eviction.DedicatedImageFS},
		"images alone on a second":               {a, b, a, eviction.SplitFS},
		"containers alone on a second":           {a, a, b, eviction.UnknownLayout},
		"three":                                  {a, b, c, eviction.UnknownLayout},
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
	require.False(t, l.grown(known(100*mebi), known(5000)), "there is nothing to compare with")
	require.False(t, l.grown(known(110*mebi), known(5999)), "a little")
	require.True(t, l.grown(known(116*mebi), known(5999)), "a little more")
	require.False(t, l.grown(known(116*mebi), known(5999)), "no more")
	require.True(t, l.grown(known(116*mebi), known(6999)), "inodes")
	require.False(t, l.grown(known(50*mebi), known(9)), "it shrank")
	require.False(t, l.grown(value{}, value{}), "unknown is no growth")
	require.True(t, l.grown(known(70*mebi), value{}), "from where it shrank to")
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	pods := map[types.UID][]string{"a": nil, "b": nil, "c": nil}
	queue := enqueue(nil, pods, []types.UID{"b", "c"})
	require.Len(t, queue, 2)
	delete(pods, "b")
	queue = enqueue(queue, pods, []types.UID{"a", "c"})
	require.Len(t, queue, 2)
	require.Equal(t, types.UID("c"), queue[0].uid, "who waited comes first")
	require.Equal(t, types.UID("a"), queue[1].uid)
}
