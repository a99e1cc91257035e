package podlogs_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for text, want := range map[string]podlogs.Line{
		"2026-01-02T03:04:05.000000006Z stdout F text":                 {Time: when, Stream: podlogs.Stdout, Text: []byte("text")},
		"2026-01-02T03:04:05.000000006Z stdout F text\n":               {Time: when, Stream: podlogs.Stdout, Text: []byte("text")},
		"2026-01-02T03:04:05.000000006Z stderr P two words \r\n":       {Time: when, Stream: podlogs.Stderr, Partial: true, Text: []byte("two words \r")},
		"2026-01-02T03:04:05.000000006Z stdout F:more:tags x\n":        {Time: when, Stream: podlogs.Stdout, Text: []byte("x")},
		"2026-01-02T03:04:05.000000006Z stdout F \n":                   {Time: when, Stream: podlogs.Stdout, Text: []byte{}},
		"2026-01-02T03:04:05.000000006Z stdout F\n":                    {Time: when, Stream: podlogs.Stdout},
		"2026-01-02T05:04:05.000000006+02:00 stdout F of other zone\n": {Time: when, Stream: podlogs.Stdout, Text: []byte("of other zone")},
	} {
		got, err := podlogs.ParseLine([]byte(text))
		require.NoError(t, err, text)
		require.True(t, want.Time.Equal(got.Time), text)
		got.Time = want.Time
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "\n", "text", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z stdout", "2026-01-02T03:04:05Z stdout ",
		"2026-01-02T03:04:05Z stdin F x", "2026-01-02T03:04:05Z stdout X x", "2026-01-02T03:04:05Z stdout  x",
		"yesterday stdout F x", "2026-01-02 03:04:05Z stdout F x", ` {"log":"x\n","stream":"stdout"}`, "\x00\x00\x00\x00",
	} {
		_, err := podlogs.ParseLine([]byte(text))
		require.Error(t, err, text)
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.000000006Z stdout F text\n"))
	f.Add([]byte("2026-01-02T05:04:05+02:00 stderr P:x:y  two words\n"))
	f.Add([]byte("2026-01-02T03:04:05Z stdout F"))
	f.Add([]byte("2026-01-02T03:04:05-24:60 stderr F text\n"))
	f.Add([]byte("   "))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		l, err := podlogs.ParseLine(data)
		require.Equal(t, before, data, "ParseLine must not modify its argument")
		if err != nil {
			require.Equal(t, podlogs.Line{}, l)
			return
		}
		if _, offset := l.Time.Zone(); max(offset, -offset)/3600 > 24 {
			return // package time parses the offset 24:60, but formats it as 25:00, which it can't parse
		}
		tag := "F"
		if l.Partial {
			tag = "P"
		}
		// The formatted line must parse to the same values.
		again, err := podlogs.ParseLine(fmt.Appendf(nil, "%s %s %s %s\n", l.Time.Format(time.RFC3339Nano), l.Stream, tag, l.Text))
		require.NoError(t, err)
		require.True(t, l.Time.Equal(again.Time))
		require.Equal(t, []any{l.Stream, l.Partial, string(l.Text)}, []any{again.Stream, again.Partial, string(again.Text)})
	})
}
