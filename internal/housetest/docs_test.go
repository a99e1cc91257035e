package housetest

import (
	"go/ast"
	"go/doc"
	"go/token"
	"iter"
	"maps"
	"slices"
	"strings"
)

// checkDocumented finds exported symbols without a doc comment. A comment on a group of
// constants or variables counts for each of them. The fields of the structs that users fill
// in also need a comment.
func checkDocumented(m *module) (found []finding) {
	for _, s := range m.sources {
		if s.isTest() || s.file.Name.Name == "main" {
			continue
		}
		for name := range undocumented(s.file) {
			found = append(found, m.findingAt(name.Pos(),
				"%s has no doc comment: document what it is, its units, ownership and errors", name.Name))
		}
	}
	return found
}

// undocumented yields the names of exported symbols without a comment.
func undocumented(file *ast.File) iter.Seq[*ast.Ident] {
	return func(yield func(*ast.Ident) bool) {
		for _, decl := range file.Decls {
			for _, name := range undocumentedIn(decl) {
				if name.IsExported() && !yield(name) {
					return
				}
			}
		}
	}
}

func undocumentedIn(decl ast.Decl) (names []*ast.Ident) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && ast.IsExported(receiver(d)) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				if d.Doc == nil && s.Doc == nil && s.Comment == nil {
					names = append(names, s.Names...)
				}
			case *ast.TypeSpec:
				if d.Doc == nil && s.Doc == nil {
					names = append(names, s.Name)
				}
				names = append(names, undocumentedFields(s)...)
			}
		}
	}
	return names
}

// undocumentedFields returns the fields without a comment of a struct that users fill in. A
// comment above several fields counts for the fields that it names.
func undocumentedFields(spec *ast.TypeSpec) (names []*ast.Ident) {
	st, ok := spec.Type.(*ast.StructType)
	if !ok || (spec.Name.Name != "Config" && spec.Name.Name != "Observer") {
		return nil
	}
	above := ""
	for _, field := range st.Fields.List {
		if field.Doc != nil {
			above = field.Doc.Text()
			continue
		}
		for _, name := range field.Names {
			if field.Comment == nil && !strings.Contains(above, name.Name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// receiver returns the type name of a method's receiver, or the name of a function that is
// not a method.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// typeSpecs yields the types that a file declares.
func typeSpecs(file *ast.File) iter.Seq[*ast.TypeSpec] {
	return func(yield func(*ast.TypeSpec) bool) {
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok && !yield(ts) {
					return
				}
			}
		}
	}
}

// checkPackages finds packages without a required part. Every package needs a package comment and a
// leak check. A package that users import needs the comment in doc.go, and an example with output.
func checkPackages(m *module) (found []finding) {
	byDir := map[string][]source{}
	for _, s := range m.sources {
		byDir[s.dir()] = append(byDir[s.dir()], s)
	}
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		files := byDir[dir]
		if within(dir, "examples") || within(dir, "test") {
			// End-to-end tests start processes and check them themselves.
			if dir != "test/e2e" && slices.ContainsFunc(files, isTestFile) && !slices.ContainsFunc(files, checksLeaks) {
				found = append(found, finding{dir, 1, "no TestMain with goleak.VerifyTestMain: add it"})
			}
			continue
		}
		if !slices.ContainsFunc(files, isPackageDoc) {
			found = append(found, finding{dir + "/doc.go", 1, "missing or without a package comment: write the manual there"})
		}
		found = append(found, missingHeadings(dir, files)...)
		if isPublic(dir) && !hasExample(files) {
			found = append(found, finding{dir + "/example_test.go", 1, "no Example with an Output comment: show the package at work"})
		}
		if !slices.ContainsFunc(files, checksLeaks) {
			found = append(found, finding{dir, 1, "no TestMain with goleak.VerifyTestMain: add it"})
		}
	}
	return found
}

func isTestFile(s source) bool { return strings.HasSuffix(s.path, "_test.go") }

func isPackageDoc(s source) bool {
	// A small internal package has its package comment in its only file.
	name := "doc.go"
	if !isPublic(s.dir()) {
		name = s.file.Name.Name + ".go"
	}
	return s.file.Doc != nil && (s.path == s.dir()+"/"+name || s.path == s.dir()+"/doc.go")
}

// headings returns the required headings of the manual of each package for users, in order.
func headings() []string {
	return []string{
		"What it does", "What you supply", "What it guarantees", "Goroutines and locking", "Differences from ", "Testing your code with it",
	}
}

// missingHeadings finds required headings that are missing or in the wrong order.
func missingHeadings(dir string, files []source) (found []finding) {
	i := slices.IndexFunc(files, isPackageDoc)
	if i < 0 || !isPublic(dir) {
		return nil
	}
	rest := "\n" + files[i].file.Doc.Text()
	for _, h := range headings() {
		_, after, ok := strings.Cut(rest, "\n# "+h)
		if !ok {
			found = append(found, finding{files[i].path, 1, "no heading \"" + strings.TrimSpace(h) + "\", or not in its place: all manuals have the same headings in the same order"})
			continue
		}
		rest = after
	}
	return found
}

func hasExample(files []source) bool {
	var tests []*ast.File
	for _, s := range files {
		if s.isTest() {
			tests = append(tests, s.file)
		}
	}
	return slices.ContainsFunc(doc.Examples(tests...), func(e *doc.Example) bool {
		return e.Output != "" || e.EmptyOutput
	})
}

// checksLeaks reports whether s has a TestMain that calls goleak.VerifyTestMain.
func checksLeaks(s source) (ok bool) {
	for _, fn := range functions(s.file) {
		if !s.isTest() || fn.Name.Name != "TestMain" || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			sel, is := n.(*ast.SelectorExpr)
			ok = ok || is && sel.Sel.Name == "VerifyTestMain"
			return !ok
		})
	}
	return ok
}
