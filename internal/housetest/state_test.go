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

// isConstant says whether v declares sentinel errors, gives another package's a
// name here, or proves an interface.
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

// forbiddenInCode says what to do instead of a function that code for users does
// not call, empty where it may.
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

// forbiddenInTests says the same for tests.
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

// isTestingValue says whether name is one that this module's tests give to a
// *testing.T and its like.
func isTestingValue(name string) bool {
	return name == "t" || name == "b" || name == "f" || name == "tb"
}

// skipper is the file that may skip a test: of a feature that the runtime lacks, and that the
// one that CI tests with has.
const skipper = "test/e2e/needs_test.go"

// checkCalls finds what code for users never does (read the system clock, start
// a context, panic, recover, run at import), what tests never do (skip, wait in
// real time), and lint directives anywhere.
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

// forbidden names what n does and should not, and what to do instead.
func forbidden(n ast.Node, test, bubble bool, imports map[string]string) (name, instead string) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if !test && n.Recv == nil && n.Name.Name == "init" {
			return "init", "leave it to whoever calls New"
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

// directives finds comments that silence the linter.
func (m *module) directives(s source) (found []finding) {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//nolint") {
				found = append(found, m.findingAt(c.Pos(), "nolint: mend the code, or the rule in .golangci.yml"))
			}
		}
	}
	return found
}

// selector splits x.y, and returns nothing for any other expression.
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
