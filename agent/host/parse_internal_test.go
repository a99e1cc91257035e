package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseMeminfo(t *testing.T) {
	for text, want := range map[string]memory{
		"MemTotal: 16 kB\nSwapTotal:\t 8 kB\n":    {total: 16 << 10, swap: 8 << 10},
		"MemTotal:16kB":                           {total: 16 << 10},
		"MemTotal: 16\nSwapTotal: 8 MB\n":         {},
		"MemTotal: -16 kB\n":                      {},
		"MemTotal: 9007199254740991 kB\n":         {total: 9007199254740991 << 10},
		"MemTotal: 9007199254740992 kB\n":         {},
		"MemTotal 16 kB\nSwapCached: 8 kB\n\n:\n": {},
	} {
		require.Equal(t, want, parseMeminfo(text), text)
	}
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add("MemTotal: 16 kB\nSwapTotal: 8 kB\n")
	f.Add("MemTotal: 9007199254740992 kB\n")
	f.Add(":\nMemTotal")
	f.Fuzz(func(t *testing.T, text string) {
		m := parseMeminfo(text)
		require.True(t, m.total >= 0 && m.swap >= 0)
		_ = osImage(text)
	})
}
