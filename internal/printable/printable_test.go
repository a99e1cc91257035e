package printable_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/printable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "",
		"plain, grün, 日本, \u00a0x":     "plain, grün, 日本, \u00a0x",
		"a\nb\r\nc\td":                 "a b  c d",
		"\x1b[2J\x00\x7f\u009b31m":     " [2J   31m",
		"a\u0085b\u2028c\u2029d":       "a b c d",
		"\u202eevil\u2066\u200b\ufeff": " evil   ",
		"\U000e0041tag":                " tag",
		"\xff\xc3(\xe2\x80":            "\ufffd\ufffd(\ufffd\ufffd",
		"\ufffd":                       "\ufffd",
	} {
		require.Equal(t, want, printable.Line(text), "%q", text)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "",
		"one\n":              "one\n",
		"one\r\ntwo\r\n":     "one\n  two\n",
		"one\n\n\x1btwo":     "one\n\n   two",
		"one\u2028two\x85\n": "one two\ufffd\n",
	} {
		require.Equal(t, want, printable.Lines(text, "  "), "%q", text)
	}
	require.Equal(t, "one\ntwo", printable.Lines("one \ntwo", ""))
}

func FuzzLines(f *testing.F) {
	f.Add("a\nb\x1b[2J\u202e\u2028\xff\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		safe := printable.Lines(text, "> ")
		require.True(t, utf8.ValidString(safe))
		require.Equal(t, strings.Count(text, "\n"), strings.Count(safe, "\n"))
		for i, line := range strings.Split(safe, "\n") {
			require.True(t, i == 0 || strings.HasPrefix(line, ">"), "%q", line)
			require.NotContains(t, line, "\u2028")
			require.NotContains(t, line, "\u2029")
			require.Equal(t, -1, strings.IndexFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }), "%q", line)
		}
		require.Equal(t, safe, printable.Lines(safe, ""), "safe text must not change")
	})
}
