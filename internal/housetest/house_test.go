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

// checks are all rules, by the name that the scripts know them by.
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
		{"pages", checkPages},
	}
}

// A finding is one breach of a rule: the place, and what to do.
type finding struct {
	file string
	line int
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

// sorted puts findings in the order of a reader who walks through the tree.
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

// findingAt makes a finding at a position in one of m's sources.
func (m *module) findingAt(pos token.Pos, format string, args ...any) finding {
	p := m.fset.Position(pos)
	return finding{p.Filename, p.Line, fmt.Sprintf(format, args...)}
}

func TestHouse(t *testing.T) {
	m, err := load("../..")
	require.NoError(t, err)
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range sorted(c.run(m)) {
				t.Error(f)
			}
		})
	}
	t.Run("weight", func(t *testing.T) { compareWeights(t, m) })
}
