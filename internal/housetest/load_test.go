package housetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// modulePath is the path of this module.
const modulePath = "github.com/kubeparts/kubeparts"

// A module is the input of the checks: every file of the tree, and the packages as listed
// by the go command.
type module struct {
	fset    *token.FileSet
	sources []source // Go files for all systems and build tags, including nested modules
	texts   []text   // all text files
	others  []string // binary files
	listed  []listed // the packages linked on linux/amd64, of this and all other modules
}

// A source is one Go file. Its path is relative to the module, with slashes.
type source struct {
	path   string
	file   *ast.File
	lines  int
	nested bool // in a nested module with its own dependencies
}

// A text is a text file.
type text struct {
	path string
	data []byte
}

// listed has fields of a package in the output of `go list -deps -json`.
type listed struct {
	ImportPath string
	Standard   bool
	Deps       []string // transitive
	Module     *struct{ Path string }
}

func (s source) dir() string { return path.Dir(s.path) }

// isTest reports whether s is a test, which users never link.
func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || within(s.dir(), "test")
}

// isExample reports whether s is part of an example, or of a program that is shipped: a folder
// below a folder cmd.
func (s source) isExample() bool {
	return within(s.dir(), "examples") || strings.Contains(s.path, "/cmd/")
}

// isProgram reports whether s is part of an example or a tool, which may read the clock and
// wait.
func (s source) isProgram() bool {
	if strings.HasSuffix(s.path, "_test.go") {
		return false
	}
	return s.isExample() || within(s.dir(), "test") && s.file.Name.Name == "main"
}

// isInternal reports whether the go command keeps users from importing the package in dir.
func isInternal(dir string) bool { return strings.Contains("/"+dir+"/", "/internal/") }

// isPublic reports whether users can import the package in dir.
func isPublic(dir string) bool {
	return !isInternal(dir) && !within(dir, "examples") && !within(dir, "test") && !strings.Contains(dir+"/", "/cmd/")
}

// isSuite reports whether a package is a test suite that users run. A test suite may import
// testing, and needs fewer tests.
func isSuite(dir string) bool { return dir == "fakecri/conformance" }

// within reports whether dir is top or below it.
func within(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// load reads the module at root.
func load(root string) (*module, error) {
	m := &module{fset: token.NewFileSet()}
	if err := m.walk(root); err != nil {
		return nil, err
	}
	listed, err := goList(root)
	if err != nil {
		return nil, err
	}
	m.listed = listed
	return m, nil
}

func (m *module) walk(root string) error {
	nested := []string(nil)
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case rel == ".":
			return nil
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".ci":
			return fs.SkipDir // version control and editors
		case entry.IsDir():
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				nested = append(nested, rel)
			}
			return nil
		case !entry.Type().IsRegular(), rel == ".git": // a file in a linked work tree
			return nil
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's temporary file
		}
		if err != nil {
			return err
		}
		return m.add(rel, data, nested)
	})
}

// add adds one file. Go files in testdata are only texts, because the go command does not
// build them.
func (m *module) add(name string, data []byte, nested []string) error {
	if bytes.IndexByte(data, 0) >= 0 {
		m.others = append(m.others, name)
		return nil
	}
	m.texts = append(m.texts, text{name, data})
	if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") {
		return nil
	}
	file, err := parser.ParseFile(m.fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	isNested := slices.ContainsFunc(nested, func(dir string) bool { return within(name, dir) })
	m.sources = append(m.sources, source{name, file, bytes.Count(data, []byte("\n")), isNested})
	return nil
}

// goList lists all packages and their dependencies with the go command. The target platform
// is fixed, so that the result is the same on every machine.
func goList(root string) ([]listed, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Standard,Deps,Module", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// ours returns the directory of one of this module's packages.
func ours(importPath string) (dir string, ok bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}
