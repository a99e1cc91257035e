// Command page writes the results of the comparisons with the kubelet to docs/how-we-know.md
// and to one line of README.md.
//
//	go run ./page
//
// It reads the records, the mutation tables and the coverage of each comparison from the
// testdata directories. Run it in test/peer, after a long run or a change of rules. A test
// checks that the pages are up to date.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func main() {
	if err := run(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	pages, err := render(root)
	if err != nil {
		return err
	}
	for name, text := range pages {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	pagePath   = "docs/how-we-know.md"
	readmePath = "README.md"
)

// render returns the text of each page by its path.
func render(root string) (map[string]string, error) {
	results, err := readResults(filepath.Join(root, "test", "peer"))
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(root, readmePath))
	if err != nil {
		return nil, err
	}
	runs, err := os.ReadFile(filepath.Join(root, "test", "clusterbed", "testdata", "runs.md"))
	if err != nil {
		return nil, err
	}
	return map[string]string{
		pagePath:   page(results, string(runs)),
		readmePath: withLine(string(readme), readmeLine(results)),
	}, nil
}

// A result is the recorded results of one comparison.
type result struct {
	judge.Record
	folder    string // below test/peer
	mutations string // the line of figures in the mutation table, or empty
	coverage  string // the line of figures in the coverage report, or empty
}

// readResults reads all records, sorted by name.
func readResults(dir string) (all []result, err error) {
	var paths []string
	for _, pattern := range []string{"*/testdata/*.json", "*/*/testdata/*.json"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		folder, err := filepath.Rel(dir, filepath.Dir(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		if folder == "judge" {
			continue // the trivial peer of package judge's tests
		}
		r, err := judge.ReadRecord(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		res := result{Record: r, folder: folder}
		if res.mutations, err = firstLine(path, "mutations.txt", " mutations drawn from "); err != nil {
			return nil, err
		}
		if res.coverage, err = firstLine(path, "coverage.txt", " statements "); err != nil {
			return nil, err
		}
		all = append(all, res)
	}
	slices.SortFunc(all, func(a, b result) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// firstLine returns the first line that contains text, in a file next to a record. It returns
// "" if the file does not exist.
func firstLine(record, name, text string) (string, error) {
	data, err := os.ReadFile(filepath.Join(filepath.Dir(record), name))
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, text) {
			return strings.TrimSpace(strings.TrimLeft(line, "# ")), nil
		}
	}
	return "", fmt.Errorf("%s: no line with %q", name, text)
}
