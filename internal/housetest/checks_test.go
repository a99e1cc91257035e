package housetest

import (
	"fmt"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestChecks_EachCanFailAndPass runs the checks on the small modules in testdata/checks. Each script
// has the name of a check, files, and the expected findings. Every check must fail in at
// least one script, and pass in at least one script.
func TestChecks_EachCanFailAndPass(t *testing.T) {
	failed, passed := map[string]bool{}, map[string]bool{}
	scripts, err := filepath.Glob("testdata/checks/*")
	require.NoError(t, err)
	for _, script := range scripts {
		datadriven.RunTest(t, script, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			i := slices.IndexFunc(checks(), func(c check) bool { return c.name == d.Cmd })
			if i < 0 {
				d.Fatalf(t, "no such check")
			}
			found := sorted(checks()[i].run(parseModule(t, strings.ReplaceAll(d.Input, veil, ""))))
			if len(found) == 0 {
				passed[d.Cmd] = true
				return "fine\n"
			}
			failed[d.Cmd] = true
			var b strings.Builder
			for _, f := range found {
				fmt.Fprintln(&b, f)
			}
			return veiled(b.String())
		})
	}
	for _, c := range checks() {
		require.True(t, failed[c.name], "no script makes check %s fail", c.name)
		require.True(t, passed[c.name], "no script makes check %s pass", c.name)
	}
}

// veil divides the forbidden words in the scripts, because the scripts are committed
// files, too.
const veil = "¦"

// veiled puts a veil into each forbidden word.
func veiled(text string) string {
	for _, w := range words() {
		text = w.pattern.ReplaceAllStringFunc(text, func(hit string) string {
			return hit[:len(hit)/2] + veil + hit[len(hit)/2:]
		})
	}
	return text
}

// parseModule returns the module of a script's input: files, each below a line "-- path
// --". A line "@N text" stands for N lines with {n} replaced by their number. The file "go
// list" has lines "package module": a package of this module links the packages up to the
// next package of this module.
func parseModule(t *testing.T, input string) *module {
	t.Helper()
	m := &module{fset: token.NewFileSet()}
	for _, part := range strings.Split("\n"+input, "\n-- ")[1:] {
		name, body, _ := strings.Cut(part, " --\n")
		body = expand(t, strings.TrimSuffix(body, "\n")+"\n")
		if name == "go list" {
			m.listed = parseList(body)
			continue
		}
		require.NoError(t, m.add(name, []byte(body), []string{"nested"}))
	}
	return m
}

// expand replaces each line "@N text" by N lines.
func expand(t *testing.T, body string) string {
	t.Helper()
	return regexp.MustCompile(`(?m)^@(\d+) (.*)$`).ReplaceAllStringFunc(body, func(line string) string {
		count, text, _ := strings.Cut(line[1:], " ")
		n, err := strconv.Atoi(count)
		require.NoError(t, err)
		lines := make([]string, n)
		for i := range lines {
			lines[i] = strings.ReplaceAll(text, "{n}", strconv.Itoa(i))
		}
		return strings.Join(lines, "\n")
	})
}

func parseList(body string) (all []listed) {
	owner := -1
	for line := range strings.Lines(body) {
		name, mod, _ := strings.Cut(strings.TrimSpace(line), " ")
		p := listed{ImportPath: name, Standard: mod == "std"}
		if !p.Standard {
			p.Module = &struct{ Path string }{mod}
		}
		if _, ok := ours(name); ok {
			owner = len(all)
		} else if owner >= 0 {
			all[owner].Deps = append(all[owner].Deps, name)
		}
		all = append(all, p)
	}
	return all
}
