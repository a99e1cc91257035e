package eviction

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSignal_Rounded(t *testing.T) {
	for n, want := range map[int64]string{
		0:                     "0",
		1023:                  "1023",
		1500:                  "1500",
		100 << 20:             "100Mi",
		100<<20 - 1:           "99.9Mi",
		1200 << 20:            "1200Mi",
		1024 << 20:            "1Gi",
		102274 << 20:          "99.8Gi",
		5<<30 - 32:            "5119.9Mi",
		math.MaxInt64:         "8388607.9Ti",
		-1 << 20:              "-1Mi",
		10<<30 + 1<<29 + 1<<9: "10.5Gi",
	} {
		require.Equal(t, want, MemoryAvailable.rounded(n))
	}
	require.Equal(t, "102274", NodeFSInodesFree.rounded(102274))
}
