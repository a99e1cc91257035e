package containergc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	f, ok := parseFolder("default_web-0_1234-5")
	require.True(t, ok)
	require.Equal(t, LogFolder{Folder: "default_web-0_1234-5", Namespace: "default", Pod: "web-0", UID: "1234-5"}, f)
	for _, name := range []string{"", "_", "__", "a_b", "a_b_", "_b_c", "a__c", "a_b_c_d", "1234-5"} {
		_, ok := parseFolder(name)
		require.False(t, ok, name)
	}
	for name, want := range map[string]int{
		"0.log": 0, "12.log": 12, "12.log.20260102-030405.gz": 12, "7.log.": 7,
		"": -1, "log": -1, ".log": -1, "-1.log": -1, "+1.log": -1, "01.log": -1, "1.logs": -1, "1": -1, "1.": -1,
		"4294967296.log": -1,
	} {
		n, ok := parseLogFile(name)
		require.Equal(t, want >= 0, ok, name)
		if ok {
			require.EqualValues(t, want, n, name)
		}
	}
	l, ok := parseLink("web-0_default_app-side-abc123.log")
	require.True(t, ok)
	require.Equal(t, LogLink{
		Name: "web-0_default_app-side-abc123.log", ContainerID: "abc123", Namespace: "default", Pod: "web-0", Container: "app-side",
	}, l)
	l, ok = parseLink("x-abc.log")
	require.True(t, ok)
	require.Equal(t, LogLink{Name: "x-abc.log", ContainerID: "abc"}, l)
	for _, name := range []string{".log", "-.log", "abc.log", "x-.log"} {
		l, ok = parseLink(name)
		require.True(t, ok, name)
		require.Equal(t, LogLink{Name: name}, l)
	}
	for _, name := range []string{"", "x-abc", "x-abc.txt"} {
		_, ok := parseLink(name)
		require.False(t, ok, name)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("default_web-0_1234-5")
	f.Add("12.log.20260102-030405.gz")
	f.Add("web-0_default_app-side-abc123.log")
	f.Fuzz(func(t *testing.T, name string) {
		if p, ok := parseFolder(name); ok {
			require.Equal(t, name, strings.Join([]string{p.Namespace, p.Pod, string(p.UID)}, "_"))
		}
		if l, ok := parseLink(name); ok {
			require.True(t, strings.HasSuffix(name, l.ContainerID+".log"))
		}
		_, _ = parseLogFile(name)
	})
}
