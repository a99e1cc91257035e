package housetest

import (
	"fmt"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A check is one rule over the whole module.
type check struct {
	name string
	run  func(*module) []finding
}

// checks returns all checks with their names in the scripts.
func checks() []check {
	return []check{
		{"edges", checkEdges},
		{"denied", checkDenied},
		{"linked", checkLinked},
		{"ceiling", checkCeiling},
		{"size", checkSize},
		{"interfaces", checkInterfaces},
		{"constructors", checkConstructors},
		{"ratio", checkRatio},
		{"documented", checkDocumented},
		{"packages", checkPackages},
		{"variables", checkVariables},
		{"calls", checkCalls},
		{"words", checkWords},
		{"riddles", checkRiddles},
		{"pages", checkPages},
	}
}

// A finding is one violation of a rule: the position and the action to take.
type finding struct {
	file string
	line int
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

// sorted sorts findings by file, line and text.
func sorted(findings []finding) []finding {
	slices.SortFunc(findings, func(a, b finding) int {
		if c := strings.Compare(a.file, b.file); c != 0 {
			return c
		}
		if a.line != b.line {
			return a.line - b.line
		}
		return strings.Compare(a.text, b.text)
	})
	return findings
}

// findingAt returns a finding at a position in one of m's sources.
func (m *module) findingAt(pos token.Pos, format string, args ...any) finding {
	p := m.fset.Position(pos)
	return finding{p.Filename, p.Line, fmt.Sprintf(format, args...)}
}

func TestHouse(t *testing.T) {
	m, err := load("../..")
	require.NoError(t, err)
	if isRewriting() {
		require.NoError(t, rewriteRiddles(m, "testdata/riddle-counts.txt"))
	}
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range sorted(c.run(m)) {
				t.Error(f)
			}
		})
	}
	t.Run("weight", func(t *testing.T) { compareWeights(t, m) })
}
