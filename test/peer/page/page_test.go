package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPages_AreUpToDate checks that the pages in the repository agree with the records.
func TestPages_AreUpToDate(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	pages, err := render(root)
	require.NoError(t, err)
	for name, want := range pages {
		have, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.Equal(t, want, string(have), "%s is out of date: run make peer-page", name)
	}
	require.Contains(t, pages[readmePath], lineBegin, "README.md has no marks for the generated line")
}

func sample() []result {
	return []result{{
		folder: "toy",
		Record: judge.Record{Name: "toy", Scenarios: 1200, Steps: 34567, Facts: 1234567, Rules: []judge.RecordedRule{
			{Name: "a|b", Class: judge.KubeletDefect, Sentence: "Ours counts once.", Doc: "toy/doc.go", Differences: 1},
			{Name: "later", Class: judge.Deliberate, Sentence: "Ours waits.", Doc: "toy/doc.go", Differences: 2000},
		}},
		mutations: "20 mutations drawn from 30: 20 found.",
	}}
}

func TestPage_CountsRulesByClass(t *testing.T) {
	text := page(sample(), "| the runs |\n")
	require.Contains(t, text, "| the runs |\n\n## How to repeat")
	require.Contains(t, text, "| [toy](#toy) | 1,200 | 34,567 | 1,234,567 | 1: 2,000 | 1: 1 | – |")
	require.Contains(t, text, "- **later** (deliberate, 2,000 times): Ours waits.\n- **a|b** (kubelet defect, once): Ours counts once.\n")
	require.Contains(t, text, "20 mutations drawn from 30: 20 found. ([table](../test/peer/toy/testdata/mutations.txt))")
}

func TestWithLine_ReplacesBetweenTheMarks(t *testing.T) {
	require.Equal(t, "a "+lineBegin+"new"+lineEnd+" b", withLine("a "+lineBegin+"old"+lineEnd+" b", "new"))
	require.Equal(t, "no marks", withLine("no marks", "new"))
}
