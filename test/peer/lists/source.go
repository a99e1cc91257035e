package lists

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// moduleDir returns the directory of a module's source.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(dir))
}

// A sourceFile is a parsed file.
type sourceFile struct {
	dir  string
	file *ast.File
}

// parse returns the Go files below a directory, without tests.
func parse(t *testing.T, root string) (all []sourceFile) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testing" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_windows.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		all = append(all, sourceFile{filepath.Base(filepath.Dir(path)), file})
		return err
	}))
	return all
}

// stringOf returns the value of a string literal.
func stringOf(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// literals returns all string literals of files.
func literals(files []sourceFile) map[string]bool {
	all := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if s, ok := stringOf(e); ok {
					all[s] = true
				}
			}
			return true
		})
	}
	return all
}

// constants returns the string constants of files by "package.Name".
func constants(files []sourceFile) map[string]string {
	all := map[string]string{}
	for _, f := range files {
		for _, decl := range f.file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) {
						if s, ok := stringOf(v.Values[i]); ok {
							all[f.file.Name.Name+"."+name.Name] = s
						}
					}
				}
			}
		}
	}
	return all
}
