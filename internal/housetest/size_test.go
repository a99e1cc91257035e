package housetest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// The limits. Most files and functions are far below the limits; see TestReport.
const (
	maxFileLines     = 600
	maxFunctionLines = 80
	maxMethods       = 5
	maxNewParameters = 1
	minTestPercent   = 120 // lines of tests per hundred of code, comments not counted
)

// checkSize finds files and functions that are too long. Tests may have long tables, so
// only the length of their files is limited.
func checkSize(m *module) (found []finding) {
	for _, s := range m.sources {
		if s.lines > maxFileLines {
			found = append(found, finding{s.path, s.lines, fmt.Sprintf(
				"the file has %d lines, at most %d: one file per idea", s.lines, maxFileLines)})
		}
		if s.isTest() {
			continue
		}
		for _, fn := range functions(s.file) {
			if n := m.lines(fn); n > maxFunctionLines {
				found = append(found, m.findingAt(fn.Pos(),
					"%s has %d lines, at most %d: decide in one function, act in another", fn.Name, n, maxFunctionLines))
			}
		}
	}
	return found
}

// functions returns the functions and methods of a file.
func functions(file *ast.File) (all []*ast.FuncDecl) {
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			all = append(all, fn)
		}
	}
	return all
}

// lines returns how many lines a node covers.
func (m *module) lines(n ast.Node) int {
	return m.fset.Position(n.End()).Line - m.fset.Position(n.Pos()).Line + 1
}

// checkInterfaces finds exported interfaces with too many methods. A union of other
// interfaces is accepted, because one client usually implements all of them.
func checkInterfaces(m *module) (found []finding) {
	for _, s := range m.sources {
		if s.isTest() || s.isExample() {
			continue
		}
		for spec := range typeSpecs(s.file) {
			it, ok := spec.Type.(*ast.InterfaceType)
			if ok && spec.Name.IsExported() && it.Methods.NumFields() > maxMethods && !isUnion(it) {
				found = append(found, m.findingAt(spec.Pos(), "interface %s has %d methods, at most %d: split it by role",
					spec.Name, it.Methods.NumFields(), maxMethods))
			}
		}
	}
	return found
}

// isUnion reports whether an interface has embedded interfaces only.
func isUnion(it *ast.InterfaceType) bool {
	return !slices.ContainsFunc(it.Methods.List, func(f *ast.Field) bool { return len(f.Names) > 0 })
}

// checkConstructors finds constructors with so many parameters that a new option would
// break their callers.
func checkConstructors(m *module) (found []finding) {
	for _, s := range m.sources {
		if s.isTest() || s.isExample() {
			continue
		}
		for _, fn := range functions(s.file) {
			if fn.Recv == nil && fn.Name.Name == "New" && fn.Type.Params.NumFields() > maxNewParameters {
				found = append(found, m.findingAt(fn.Pos(), "New has %d parameters: put them into a Config",
					fn.Type.Params.NumFields()))
			}
		}
	}
	return found
}

// checkRatio finds packages for users with too few lines of tests.
func checkRatio(m *module) (found []finding) {
	for _, st := range stats(m) {
		if isPublic(st.dir) && !isSuite(st.dir) && st.testLines*100 < st.codeLines*minTestPercent {
			found = append(found, finding{st.dir, 1, fmt.Sprintf(
				"%d lines of tests for %d of code, at least %d for 100", st.testLines, st.codeLines, minTestPercent)})
		}
	}
	return found
}

// A stat has the sizes of a package for the report.
type stat struct {
	dir                     string
	codeLines, testLines    int // comments not counted: a manual needs no tests
	commentLines            int // in code
	longestFile, longestFun int // in code
}

// stats returns the sizes of each package, sorted by name.
func stats(m *module) (all []stat) {
	byDir := map[string]*stat{}
	for _, s := range m.sources {
		st := byDir[s.dir()]
		if st == nil {
			st = &stat{dir: s.dir()}
			byDir[s.dir()] = st
		}
		comments := 0
		for _, group := range s.file.Comments {
			comments += m.lines(group)
		}
		if s.isTest() {
			st.testLines += s.lines - comments
			continue
		}
		st.codeLines += s.lines - comments
		st.commentLines += comments
		st.longestFile = max(st.longestFile, s.lines)
		for _, fn := range functions(s.file) {
			st.longestFun = max(st.longestFun, m.lines(fn))
		}
	}
	for _, t := range m.texts {
		dir, rest, ok := strings.Cut(t.path, "/testdata/")
		if st := byDir[dir]; ok && st != nil && !strings.HasPrefix(rest, "fuzz/") {
			st.testLines += goldenLines(t.data)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		all = append(all, *byDir[dir])
	}
	return all
}

// goldenLines counts the lines of a golden file or table without comments and empty lines.
// They count as test code.
func goldenLines(data []byte) (n int) {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}
