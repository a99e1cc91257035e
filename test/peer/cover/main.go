// Command cover reports which statements of our decision code a comparison with the kubelet
// reaches.
//
//	go run ./cover PACKAGE...
//
// PACKAGE is a directory of this module that has a TestPeer, such as ./eviction. The command
// covers the files in the mutation table of that package. It writes the report to
// testdata/coverage.txt: one line for each file, and each statement block that no scenario
// reached, with its first line of code.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/cover"
)

const modulePath = "github.com/kubeparts/kubeparts/"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cover PACKAGE...")
		os.Exit(2)
	}
	for _, pkg := range os.Args[1:] {
		if err := run(context.Background(), pkg); err != nil {
			fmt.Fprintf(os.Stderr, "cover: %s: %v\n", pkg, err)
			os.Exit(1)
		}
	}
}

func run(ctx context.Context, pkg string) error {
	files, err := decisionFiles(filepath.Join(pkg, "testdata", "mutations.txt"))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "cover-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	profile := filepath.Join(scratch, "profile")
	var packages []string
	for _, f := range files {
		packages = append(packages, modulePath+filepath.Dir(f))
	}
	slices.Sort(packages)
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-run", "^TestPeer",
		"-coverpkg", strings.Join(slices.Compact(packages), ","), "-coverprofile", profile, pkg)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	profiles, err := cover.ParseProfiles(profile)
	if err != nil {
		return err
	}
	text, err := report(filepath.Join("..", ".."), files, profiles)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(pkg, "testdata", "coverage.txt"), []byte(text), 0o644)
}

// decisionFiles returns the files in a mutation table.
func decisionFiles(table string) ([]string, error) {
	data, err := os.ReadFile(table)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if files, ok := strings.CutPrefix(line, "files: "); ok {
			return strings.Fields(files), nil
		}
	}
	return nil, errors.New(table + " names no files")
}

// report lists the covered share of each file, and the blocks that no scenario reached.
func report(root string, files []string, profiles []*cover.Profile) (string, error) {
	var lines strings.Builder
	all, reached := 0, 0
	for _, p := range profiles {
		name := strings.TrimPrefix(p.FileName, modulePath)
		if !slices.Contains(files, name) {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		fileAll, fileReached, missing := blocks(p.Blocks, strings.Split(string(source), "\n"))
		all, reached = all+fileAll, reached+fileReached
		fmt.Fprintf(&lines, "%5.1f%%  %s\n%s", percent(fileReached, fileAll), name, missing)
	}
	return fmt.Sprintf("# What the comparison reaches of our decision code. Written by: go run ./cover\n"+
		"# %.1f %% of %d statements are reached.\n\n%s", percent(reached, all), all, lines.String()), nil
}

// blocks counts statements, and lists the blocks that no scenario reached.
func blocks(all []cover.ProfileBlock, source []string) (statements, reached int, missing string) {
	slices.SortFunc(all, func(a, b cover.ProfileBlock) int {
		return cmp.Or(cmp.Compare(a.StartLine, b.StartLine), cmp.Compare(a.StartCol, b.StartCol))
	})
	var b strings.Builder
	for _, block := range all {
		statements += block.NumStmt
		if block.Count > 0 {
			reached += block.NumStmt
			continue
		}
		if block.NumStmt > 0 {
			fmt.Fprintf(&b, "        not reached: %s\n", firstStatement(block, source))
		}
	}
	return statements, reached, b.String()
}

// firstStatement returns the line in front of a block and the first line of the block.
func firstStatement(b cover.ProfileBlock, source []string) string {
	lead := strings.TrimSpace(source[b.StartLine-1])
	if b.StartLine >= b.EndLine || b.StartLine >= len(source) {
		return lead
	}
	return lead + " " + strings.TrimSpace(source[b.StartLine])
}

func percent(part, all int) float64 {
	if all == 0 {
		return 100
	}
	return 100 * float64(part) / float64(all)
}
