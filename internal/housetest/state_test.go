package housetest

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
)

// checkVariables finds package variables, which two users of a package in one
// process would share. Sentinel errors, interface proofs and embedded files
// never change and are fine.
func checkVariables(m *module) (found []finding) {
	for _, s := range m.sources {
		if s.isTest() || s.isExample() {
			continue
		}
		for _, decl := range s.file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if ok && !isConstant(v) && !embedded(gen.Doc) && !embedded(v.Doc) {
					found = append(found, m.findingAt(v.Pos(),
						"package variable %s: make it a constant, a field of Config or a function", v.Names[0]))
				}
			}
		}
	}
	return found
}

// isConstant reports whether v declares or renames sentinel errors, or proves that a type
// implements an interface.
func isConstant(v *ast.ValueSpec) bool {
	for i, name := range v.Names {
		if name.Name == "_" {
			continue
		}
		if i >= len(v.Values) || !strings.HasPrefix(strings.ToLower(name.Name), "err") || !isError(v.Values[i]) {
			return false
		}
	}
	return true
}

func isError(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		pkg, fn := selector(call.Fun)
		return pkg == "errors" && fn == "New" || pkg == "fmt" && fn == "Errorf"
	}
	_, name := selector(e)
	return strings.HasPrefix(name, "Err")
}

func embedded(group *ast.CommentGroup) bool {
	if group == nil {
		return false
	}
	for _, c := range group.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// forbiddenInCode returns what to use instead of a function that code for users must not
// call, or an empty string.
func forbiddenInCode(pkg, fn string) string {
	switch pkg + "." + fn {
	case "time.Now", "time.Since", "time.Until", "time.After", "time.Tick", "time.Sleep",
		"time.NewTimer", "time.NewTicker", "time.AfterFunc":
		return "use the injected clock"
	case "context.Background", "context.TODO":
		return "take a context"
	}
	return ""
}

// forbiddenInTests is like [forbiddenInCode], for tests.
func forbiddenInTests(pkg, fn string, bubble bool) string {
	switch {
	case pkg == "time" && fn == "Sleep" && !bubble:
		return "wait for the event itself, or use a synctest bubble"
	case strings.HasPrefix(pkg, "github.com/stretchr/testify/") && (strings.HasPrefix(fn, "Eventually") || strings.HasPrefix(fn, "Never")):
		return "wait for the event itself, or use a synctest bubble"
	case isTestingValue(pkg) && (fn == "Skip" || fn == "Skipf" || fn == "SkipNow"):
		return "a test that does not run protects nothing: make it run, or remove it"
	}
	return ""
}

// isTestingValue reports whether name is a usual name of a *testing.T, *testing.B,
// *testing.F or testing.TB.
func isTestingValue(name string) bool {
	return name == "t" || name == "b" || name == "f" || name == "tb"
}

// skipper is the only file that may skip tests. It skips the tests of features that the
// runtime lacks. The runtime in CI has all these features.
const skipper = "test/e2e/needs_test.go"

// checkCalls finds calls that code for users must not make (read the system clock, create a
// root context, panic, recover, run at import), calls that tests must not make (skip, wait
// in real time), and lint directives.
func checkCalls(m *module) (found []finding) {
	for _, s := range m.sources {
		found = append(found, m.directives(s)...)
		if s.isProgram() {
			continue
		}
		imports := importNames(s.file)
		bubble := imports["synctest"] == "testing/synctest"
		ast.Inspect(s.file, func(n ast.Node) bool {
			name, instead := forbidden(n, s.isTest(), bubble, imports)
			if instead != "" && (s.path != skipper || name != "t.Skipf") {
				found = append(found, m.findingAt(n.Pos(), "%s: %s", name, instead))
			}
			return true
		})
	}
	return found
}

// forbidden returns the forbidden name that n uses and what to use instead, or empty
// strings.
func forbidden(n ast.Node, test, bubble bool, imports map[string]string) (name, instead string) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if !test && n.Recv == nil && n.Name.Name == "init" {
			return "init", "let the caller of New do it"
		}
	case *ast.CallExpr:
		id, ok := n.Fun.(*ast.Ident)
		if !test && ok && (id.Name == "panic" || id.Name == "recover") {
			return id.Name, "return an error, and let panics reach the embedder"
		}
	case *ast.SelectorExpr:
		pkg, fn := selector(n)
		name = pkg + "." + fn
		if p, ok := imports[pkg]; ok {
			pkg = p
		}
		if test {
			return name, forbiddenInTests(pkg, fn, bubble)
		}
		return name, forbiddenInCode(pkg, fn)
	}
	return "", ""
}

// directives finds comments that disable the linter.
func (m *module) directives(s source) (found []finding) {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//nolint") {
				found = append(found, m.findingAt(c.Pos(), "nolint: fix the code, or change the rule in .golangci.yml"))
			}
		}
	}
	return found
}

// selector splits x.y. It returns empty strings if the expression has another form.
func selector(e ast.Expr) (x, y string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", sel.Sel.Name
	}
	return id.Name, sel.Sel.Name
}

// importNames returns the paths of a file's imports by the names they have in it.
func importNames(file *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range file.Imports {
		p := importPath(spec.Path.Value)
		if spec.Name != nil {
			names[spec.Name.Name] = p
		} else {
			names[path.Base(p)] = p
		}
	}
	return names
}
