package lists

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A list is one golden file.
type list struct {
	name    string
	about   string // the first line of the file
	entries []string
	// has reports whether our code has an entry. If it is nil, this test does not check that.
	has func(entry string) bool
}

func (l list) path() string { return filepath.Join("testdata", l.name+".txt") }

// read returns the verdicts of the file.
func (l list) read(t *testing.T) map[string]string {
	t.Helper()
	verdicts := map[string]string{}
	data, err := os.ReadFile(l.path())
	if os.IsNotExist(err) {
		return verdicts
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		entry, verdict, ok := strings.Cut(line, " | ")
		require.True(t, ok, "%s: line without a verdict: %s", l.path(), line)
		require.NotContains(t, verdicts, entry, "%s: duplicate entry", l.path())
		verdicts[entry] = verdict
	}
	return verdicts
}

func (l list) write(t *testing.T) {
	t.Helper()
	verdicts := l.read(t)
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n# Entry | verdict of ours: yes, no: REASON, or planned: WHAT.\n", l.about)
	for _, entry := range l.sorted() {
		verdict := verdicts[entry]
		if verdict == "" {
			verdict = "?"
		}
		fmt.Fprintf(&b, "%s | %s\n", entry, verdict)
	}
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, os.WriteFile(l.path(), []byte(b.String()), 0o644))
}

func (l list) sorted() []string {
	return slices.Compact(slices.Sorted(slices.Values(l.entries)))
}

// check compares the file with the kubelet's list and with our code.
func (l list) check(t *testing.T) {
	t.Helper()
	require.NotEmpty(t, l.entries)
	verdicts := l.read(t)
	for _, entry := range l.sorted() {
		verdict := verdicts[entry]
		isYes := verdict == "yes"
		_, reason, ok := strings.Cut(verdict, ": ")
		kind, _, _ := strings.Cut(verdict, ":")
		switch {
		case verdict == "" || verdict == "?":
			t.Errorf("%s: %s has no verdict. Write yes, no: REASON, or planned: WHAT", l.path(), entry)
		case !isYes && (kind != "no" && kind != "planned" || !ok || strings.TrimSpace(reason) == ""):
			t.Errorf("%s: %s: %q is not a verdict", l.path(), entry, verdict)
		case l.has != nil && isYes != l.has(entry):
			t.Errorf("%s: %s: the verdict is %q, but our code has the entry: %t", l.path(), entry, verdict, l.has(entry))
		}
		delete(verdicts, entry)
	}
	for _, entry := range slices.Sorted(maps.Keys(verdicts)) {
		t.Errorf("%s: %s: the kubelet no longer has this entry", l.path(), entry)
	}
}
