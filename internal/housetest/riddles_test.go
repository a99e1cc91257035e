package housetest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list of riddles, and the table with the accepted numbers of matches. To create a
// new table, delete the old table and run this package's tests with -rewrite.
const (
	riddleList  = "internal/housetest/testdata/riddles.txt"
	riddleTable = "internal/housetest/testdata/riddle-counts.txt"
)

const riddleHeader = `# Matches of riddles.txt in comments and strings of each package and in each page. No
# number may grow. -rewrite lowers numbers, and never raises one.
`

// A riddle is a phrase that readers do not understand at first reading.
type riddle struct {
	pattern *regexp.Regexp
	instead string
}

// file returns the content of a text file of the module, or nil if the file does not
// exist.
func (m *module) file(name string) []byte {
	i := slices.IndexFunc(m.texts, func(t text) bool { return t.path == name })
	if i < 0 {
		return nil
	}
	return m.texts[i].data
}

// listLines returns the lines of a file with their numbers, without comments.
func (m *module) listLines(name string) map[int]string {
	lines := map[int]string{}
	for i, line := range strings.Split(string(m.file(name)), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			lines[i+1] = line
		}
	}
	return lines
}

// riddles reads the list. An invalid line is a finding.
func (m *module) riddles() (all []riddle, found []finding) {
	lines := m.listLines(riddleList)
	for _, n := range slices.Sorted(maps.Keys(lines)) {
		expr, instead, ok := strings.Cut(lines[n], "\t")
		pattern, err := regexp.Compile("(?i)" + strings.ReplaceAll(expr, " ", `\s+`))
		if err != nil || !ok {
			found = append(found, finding{riddleList, n, "not a regular expression, a tab and a reason"})
			continue
		}
		all = append(all, riddle{pattern, instead})
	}
	return all, found
}

// commentMark matches the marks at the start of comment lines, which may divide a
// phrase.
var commentMark = regexp.MustCompile(`(?m)^[\t ]*(//|\*)`)

// matches returns a finding for each riddle in a text that begins at a line of a file.
func matches(all []riddle, file string, line int, text string) (found []finding) {
	text = commentMark.ReplaceAllString(text, "")
	for _, r := range all {
		for _, at := range r.pattern.FindAllStringIndex(text, -1) {
			hit := strings.Join(strings.Fields(text[at[0]:at[1]]), " ")
			found = append(found, finding{file, line + strings.Count(text[:at[0]], "\n"), fmt.Sprintf("%q: %s", hit, r.instead)})
		}
	}
	return found
}

// riddlesByPlace returns the matches by package and by page.
func (m *module) riddlesByPlace(all []riddle) map[string][]finding {
	found := map[string][]finding{}
	for _, s := range m.sources {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		add := func(pos token.Pos, text string) {
			found[s.dir()] = append(found[s.dir()], matches(all, s.path, m.fset.Position(pos).Line, text)...)
		}
		for _, group := range s.file.Comments {
			lines := make([]string, len(group.List))
			for i, c := range group.List {
				lines[i] = c.Text
			}
			add(group.Pos(), strings.Join(lines, "\n"))
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				add(lit.Pos(), lit.Value)
			}
			return true
		})
	}
	for _, page := range m.texts {
		generated := page.path == "docs/how-we-know.md"
		if path.Ext(page.path) == ".md" && !generated && !strings.Contains("/"+page.path, "/testdata/") {
			found[page.path] = append(found[page.path], matches(all, page.path, 1, prose(page))...)
		}
	}
	return found
}

// accepted returns the numbers in the table.
func (m *module) accepted() map[string]int {
	counts := map[string]int{}
	for _, line := range m.listLines(riddleTable) {
		if fields := strings.Fields(line); len(fields) == 2 {
			counts[fields[0]], _ = strconv.Atoi(fields[1])
		}
	}
	return counts
}

// checkRiddles compares the number of riddles with the table. It reports both a higher
// and a lower number. A lower number must be recorded in the table, so that the number
// does not grow again.
func checkRiddles(m *module) []finding {
	all, found := m.riddles()
	places, accepted := m.riddlesByPlace(all), m.accepted()
	for place := range accepted {
		places[place] = slices.Clip(places[place]) // so that a place without riddles is compared, too
	}
	for place, hits := range places {
		switch most := accepted[place]; {
		case len(hits) > most:
			found = append(found, finding{place, 1, fmt.Sprintf("%d riddles, at most %d: rewrite one of these", len(hits), most)})
			found = append(found, hits...)
		case len(hits) < most:
			found = append(found, finding{riddleTable, 1, fmt.Sprintf("%s has %d riddles and not %d: run with -rewrite", place, len(hits), most)})
		}
	}
	return found
}

// lowerRiddles returns the table with each number lowered to the current number. If the
// table does not exist, every number is accepted.
func lowerRiddles(m *module) []byte {
	all, _ := m.riddles()
	isNew, accepted := m.file(riddleTable) == nil, m.accepted()
	var lines []string
	for place, hits := range m.riddlesByPlace(all) {
		n := len(hits)
		if !isNew {
			n = min(n, accepted[place])
		}
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%-40s %4d\n", place, n))
		}
	}
	slices.Sort(lines)
	return append([]byte(riddleHeader), strings.Join(lines, "")...)
}

// rewriteRiddles writes the lowered table to a file, and replaces it in m.
func rewriteRiddles(m *module, file string) error {
	lowered := lowerRiddles(m)
	m.texts = append(slices.DeleteFunc(m.texts, func(t text) bool { return t.path == riddleTable }), text{riddleTable, lowered})
	return os.WriteFile(file, lowered, 0o644)
}

// isRewriting reports whether the tests run with datadriven's -rewrite.
func isRewriting() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}

func TestRewriteRiddles_OnlyLowersNumbers(t *testing.T) {
	t.Parallel()
	table := "fewer 3\nmore 1\ngone 2\n"
	const source = "// Package %s does\n// what was\n// said.\npackage %s\n\nconst s = \"what was said\"\n"
	for _, tc := range []struct{ table, want string }{
		{table, "fewer 2\nmore 1\n"},
		{"", "fewer 2\nmore 2\n"}, // a new table
	} {
		m := &module{fset: token.NewFileSet()}
		require.NoError(t, m.add(riddleList, []byte("# a comment\nwhat was said\\b\tname it\n"), nil))
		for _, dir := range []string{"fewer", "more"} {
			require.NoError(t, m.add(dir+"/doc.go", []byte(fmt.Sprintf(source, dir, dir)), nil))
		}
		if tc.table != "" {
			require.NoError(t, m.add(riddleTable, []byte(tc.table), nil))
		}
		name := filepath.Join(t.TempDir(), "counts.txt")
		require.NoError(t, rewriteRiddles(m, name))
		written, err := os.ReadFile(name)
		require.NoError(t, err)
		body := strings.TrimPrefix(string(written), riddleHeader)
		require.Equal(t, strings.Fields(tc.want), strings.Fields(body))
		require.Len(t, checkRiddles(m), map[bool]int{true: 3}[tc.table != ""]) // more still fails
	}
}
