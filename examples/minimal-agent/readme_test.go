package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
)

func TestREADME_ListsFilesAndFlags(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := string(data)
	for _, name := range settings.Flags() {
		require.Contains(t, text, "`"+name+"`")
	}
	_, rows, ok := strings.Cut(text, "| file | topic |")
	require.True(t, ok)
	files := ""
	for row := range strings.Lines(rows) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		files += cell
	}
	there, err := filepath.Glob("*.go")
	require.NoError(t, err)
	folders, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	deeper, err := filepath.Glob("*/*/*.go")
	require.NoError(t, err)
	missing := map[string]bool{}
	for _, f := range there {
		if !strings.HasSuffix(f, "_test.go") {
			missing[f] = true
		}
	}
	for _, f := range append(folders, deeper...) {
		missing[filepath.ToSlash(filepath.Dir(f))+"/"] = true
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(files, -1) {
		if !strings.HasSuffix(m[1], ".go") && !strings.HasSuffix(m[1], "/") {
			continue
		}
		require.False(t, named[m[1]], "duplicate entry %s", m[1])
		named[m[1]] = true
		found := false
		for f := range missing {
			if hit, _ := filepath.Match(m[1], f); hit {
				found = true
				delete(missing, f)
			}
		}
		require.True(t, found, "%s does not exist", m[1])
	}
	require.Empty(t, missing, "the README does not describe these")
}
