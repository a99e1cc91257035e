package main

import (
	"cmp"
	"fmt"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A site is one mutation: a part of a file, and a function that writes it with a switch.
type site struct {
	kind     string
	file     string // relative to the root module
	function string
	from, to int // offsets in the file
	before   string
	after    string
	// write returns the part with a switch. text returns the source between two offsets,
	// including other mutations there.
	write func(number int, text func(from, to int) string) string
}

func (s site) String() string {
	return fmt.Sprintf("%s %s %s: `%s` -> `%s`", s.file, s.function, s.kind, s.before, s.after)
}

// load parses and type-checks the packages of files. replaced is an overlay, or nil.
func load(root string, files []string, replaced map[string]string) ([]*packages.Package, error) {
	dirs := map[string]bool{}
	for _, f := range files {
		dirs["./"+filepath.Dir(f)] = true
	}
	contents := map[string][]byte{}
	for name, with := range replaced {
		data, err := os.ReadFile(with)
		if err != nil {
			return nil, err
		}
		contents[name] = data
	}
	var patterns []string
	for d := range dirs {
		patterns = append(patterns, d)
	}
	slices.Sort(patterns)
	return packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile,
		Dir:  root, Overlay: contents, Env: append(os.Environ(), "CGO_ENABLED=0"),
	}, patterns...)
}

// findSites returns every possible mutation of the files.
func findSites(root string, files []string) (all []site, err error) {
	pkgs, err := load(root, files, nil)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			return nil, e
		}
		for _, f := range p.Syntax {
			name := p.Fset.Position(f.Package).Filename
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(files, rel) {
				continue
			}
			seen[rel] = true
			source, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			v := &visitor{info: p.TypesInfo, fset: p.Fset, pkg: p.Types, file: f, name: rel, source: source}
			v.visit()
			all = append(all, v.sites...)
		}
	}
	for _, f := range files {
		if !seen[f] {
			return nil, fmt.Errorf("%s: no such file in the root module", f)
		}
	}
	return all, nil
}

// draw returns count of the sites, an equal share of each kind, in the order of
// the files.
func draw(all []site, count int, seed uint64) (drawn []site) {
	random := rand.New(rand.NewPCG(seed, 0))
	kinds := map[string][]site{}
	for _, s := range all {
		kinds[s.kind] = append(kinds[s.kind], s)
	}
	var names []string
	for kind, sites := range kinds {
		names = append(names, kind)
		slices.SortFunc(sites, bySource)
	}
	slices.Sort(names)
	for len(drawn) < count && len(drawn) < len(all) {
		for _, kind := range names {
			if n := len(kinds[kind]); n > 0 && len(drawn) < count {
				i := random.IntN(n)
				drawn = append(drawn, kinds[kind][i])
				kinds[kind] = slices.Delete(kinds[kind], i, i+1)
			}
		}
	}
	slices.SortFunc(drawn, bySource)
	return drawn
}

func bySource(a, b site) int {
	// An outer part comes before its inner parts.
	return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to), cmp.Compare(a.after, b.after))
}

// overlay writes the mutated files and returns the overlay: a map from original to mutated
// files.
func overlay(root, scratch string, sites []site) (map[string]string, error) {
	replaced := map[string]string{}
	numbers := map[string][]int{}
	for i, s := range sites {
		numbers[s.file] = append(numbers[s.file], i)
	}
	for file, indexes := range numbers {
		path := filepath.Join(root, file)
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		w := writer{source: source, sites: sites, indexes: indexes}
		target := filepath.Join(scratch, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(target, []byte(w.part(0, len(source), -1)), 0o600); err != nil {
			return nil, err
		}
		replaced[path] = target
		if err := addSwitch(filepath.Dir(path), scratch, replaced); err != nil {
			return nil, err
		}
	}
	return replaced, nil
}

// switchSource is a file that the command adds to each mutated package.
const switchSource = `package %s

import (
	"os"
	"strconv"
)

var peerMutantNumber, _ = strconv.Atoi(os.Getenv("PEER_MUTANT"))

func peerMutant(n int) bool { return n == peerMutantNumber }

func peerMutantValue[T any](n int, with, without T) T {
	if peerMutant(n) {
		return with
	}
	return without
}

var _ = peerMutantValue[int]
`

func addSwitch(dir, scratch string, replaced map[string]string) error {
	name := filepath.Join(dir, "peer_mutant.go")
	if replaced[name] != "" {
		return nil
	}
	target := filepath.Join(scratch, strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "_"))
	replaced[name] = target
	return os.WriteFile(target, fmt.Appendf(nil, switchSource, filepath.Base(dir)), 0o600)
}

// A writer writes a file with its mutations.
type writer struct {
	source  []byte
	sites   []site
	indexes []int
}

// part returns the source between two offsets with the mutations inside, outermost first.
// outer is the mutation that is currently written.
func (w writer) part(from, to, outer int) string {
	var b strings.Builder
	at := from
	for _, i := range w.indexes {
		s := w.sites[i]
		if s.from < at || s.to > to || i <= outer {
			continue
		}
		b.Write(w.source[at:s.from])
		fmt.Fprintf(&b, " %s%d*/ ", marker, i+1) // with a space in front: a/2 must not become a//*...
		b.WriteString(s.write(i+1, func(from, to int) string { return w.part(from, to, i) }))
		at = s.to
	}
	b.Write(w.source[at:to])
	return b.String()
}

// broken returns the numbers of mutations that do not compile, in ascending order.
func broken(root string, files []string, replaced map[string]string) (numbers []int, err error) {
	pkgs, err := load(root, files, replaced)
	if err != nil {
		return nil, err
	}
	for _, p := range pkgs {
		for _, e := range p.TypeErrors {
			pos := p.Fset.Position(e.Pos)
			if replaced[pos.Filename] == "" { // for example a consequence of a syntax error
				return nil, p.Errors[0]
			}
			n, err := numberAt(replaced[pos.Filename], pos)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", err, e)
			}
			if !slices.Contains(numbers, n) {
				numbers = append(numbers, n)
			}
		}
		if len(p.TypeErrors) == 0 && len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// marker is the beginning of the comment with the number in front of each mutation.
const marker = "/*mutation "

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// numberAt returns the number of the last mutation in front of a position, or of the next one
// on the same line.
func numberAt(file string, pos token.Position) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	end := pos.Offset
	if i := strings.IndexByte(string(data[end:]), '\n'); i >= 0 {
		end += i
	}
	_, digits, ok := cutLast(string(data[:end]), marker)
	if ok {
		number, _, _ := strings.Cut(digits, "*/")
		return strconv.Atoi(number)
	}
	return 0, fmt.Errorf("%s: no mutation before line %d", file, pos.Line)
}
