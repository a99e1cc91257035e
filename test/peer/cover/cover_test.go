package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/tools/cover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReport_ListsWhatIsNotReached(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a", "a.go"), []byte("package a\nfunc F(n int) int {\n\tif n > 1 {\n\t\treturn 2\n\t}\n\treturn 3\n}\n"), 0o600))
	profiles := []*cover.Profile{
		{FileName: modulePath + "a/a.go", Blocks: []cover.ProfileBlock{
			{StartLine: 6, StartCol: 2, EndLine: 6, EndCol: 10, NumStmt: 1, Count: 4},
			{StartLine: 3, StartCol: 11, EndLine: 5, EndCol: 3, NumStmt: 1},
		}},
		{FileName: modulePath + "a/other.go", Blocks: []cover.ProfileBlock{{NumStmt: 5}}},
	}
	text, err := report(root, []string{"a/a.go"}, profiles)
	require.NoError(t, err)
	require.Contains(t, text, "# 50.0 % of 2 statements are reached.\n")
	require.Contains(t, text, " 50.0%  a/a.go\n        not reached: if n > 1 { return 2\n")
	require.NotContains(t, text, "other.go")
}

func TestDecisionFiles_ComeFromTheTable(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mutations.txt")
	require.NoError(t, os.WriteFile(table, []byte("# a comment\nfiles: a/a.go b/b.go\n"), 0o600))
	files, err := decisionFiles(table)
	require.NoError(t, err)
	require.Equal(t, []string{"a/a.go", "b/b.go"}, files)
	require.NoError(t, os.WriteFile(table, []byte("# nothing\n"), 0o600))
	_, err = decisionFiles(table)
	require.ErrorContains(t, err, "names no files")
}
