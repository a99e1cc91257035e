package expansion_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/expansion"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func value(name string) string {
	if name == "A" {
		return "$(B)12"
	}
	return "$(" + name + ")"
}

func TestExpand(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "", "x": "x", "$(A)": "$(B)12", "x$(A)y$(A)": "x$(B)12y$(B)12", "$(C)": "$(C)", "$$(A)": "$(A)", "$$$(A)": "$$(B)12",
		"$": "$", "$$": "$", "$A)": "$A)", "$(A": "$(A", "$()": "$()", "$($(A))": "$($(A))", "a$b$(A)": "a$b$(B)12",
	} {
		got, ok := expansion.Expand(s, 100, value)
		require.True(t, ok)
		require.Equal(t, want, got, s)
	}
}

func TestExpand_Limit(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"x$(A)$$", "12345678"} {
		got, ok := expansion.Expand(s, 8, value)
		require.True(t, ok, s)
		require.Len(t, got, 8, s)
		got, ok = expansion.Expand(s, 7, value)
		require.False(t, ok, s)
		require.Empty(t, got, s)
	}
	_, ok := expansion.Expand("", -1, value)
	require.False(t, ok)
	big := strings.Repeat("x", 1<<20)
	_, ok = expansion.Expand(strings.Repeat("$(X)", 1<<18), 1<<21, func(string) string { return big })
	require.False(t, ok)
}

func FuzzExpand(f *testing.F) {
	f.Add("x$(A)$$(A)$", 20)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		got, ok := expansion.Expand(s, limit, value)
		require.Equal(t, ok, limit >= 0 && len(got) <= limit && (got != "" || ok))
	})
}
