package nodestats

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/eviction"
)

func TestLayoutOf(t *testing.T) {
	t.Parallel()
	a, b, c := fsID{dev: 1}, fsID{dev: 2}, fsID{source: "/dev/sdc"}
	tests := map[string]struct {
		node, image, container fsID
		want                   eviction.Layout
	}{
		"one for all":                       {a, a, a, eviction.SingleFS},
		"images and containers on a second": {a, b, b, eviction.DedicatedImageFS},
		"images alone on a second":          {a, b, a, eviction.SplitFS},
		"containers alone on a second":      {a, a, b, eviction.UnknownLayout},
		"three":                             {a, b, c, eviction.UnknownLayout},
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
