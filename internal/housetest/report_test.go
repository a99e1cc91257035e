package housetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With go test -v, TestReport prints the sizes of all packages.
func TestReport(t *testing.T) {
	m, err := load("../..")
	require.NoError(t, err)
	t.Log("\n" + report(stats(m)))
}

// report returns a table of sizes, with a last line for the whole module.
func report(all []stat) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-32s %6s %6s %9s %9s %8s %8s\n",
		"package", "code", "tests", "tests:code", "comments", "max file", "max func")
	total := stat{dir: "all"}
	for _, st := range all {
		b.WriteString(st.line())
		total.codeLines += st.codeLines
		total.testLines += st.testLines
		total.commentLines += st.commentLines
		total.longestFile = max(total.longestFile, st.longestFile)
		total.longestFun = max(total.longestFun, st.longestFun)
	}
	b.WriteString(total.line())
	return b.String()
}

func (st stat) line() string {
	code, all := float64(max(st.codeLines, 1)), float64(max(st.codeLines+st.commentLines, 1))
	return fmt.Sprintf("%-32s %6d %6d %10.2f %8.0f%% %8d %8d\n", st.dir, st.codeLines, st.testLines,
		float64(st.testLines)/code, 100*float64(st.commentLines)/all, st.longestFile, st.longestFun)
}
