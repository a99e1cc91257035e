package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// A visitor collects the mutations of one file.
type visitor struct {
	info   *types.Info
	fset   *token.FileSet
	pkg    *types.Package
	file   *ast.File
	name   string
	source []byte

	function string
	sites    []site
}

// visit walks through all function bodies.
func (v *visitor) visit() {
	for _, decl := range v.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		v.function = fn.Name.Name
		v.body(fn.Body, v.info.Defs[fn.Name].Type().(*types.Signature))
	}
}

// body collects the mutations of a function's body. Function literals inside it have separate
// results.
func (v *visitor) body(body *ast.BlockStmt, signature *types.Signature) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			v.body(n.Body, v.info.TypeOf(n).(*types.Signature))
			return false
		case *ast.BinaryExpr:
			v.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				v.expression("logical", n, func(text func(ast.Node) string) string { return "(" + text(n.X) + ")" })
			}
		case *ast.BasicLit:
			v.constant(n)
		case *ast.ReturnStmt:
			v.returns(n, signature.Results())
		case *ast.BlockStmt:
			v.statements(n.List)
		case *ast.CaseClause:
			v.statements(n.Body)
		case *ast.CommClause:
			v.statements(n.Body)
		case *ast.CompositeLit:
			v.fields(n)
		}
		return true
	})
}

func (v *visitor) offset(p token.Pos) int { return v.fset.Position(p).Offset }

// text returns the unchanged source of a node.
func (v *visitor) text(n ast.Node) string {
	return string(v.source[v.offset(n.Pos()):v.offset(n.End())])
}

// add adds a mutation of n. write gets the number and a function that returns the source of a
// node including the mutations inside.
func (v *visitor) add(kind string, n ast.Node, after string, write func(number int, text func(ast.Node) string) string) {
	v.sites = append(v.sites, site{
		kind: kind, file: v.name, function: v.function, from: v.offset(n.Pos()), to: v.offset(n.End()),
		before: oneLine(v.text(n)), after: oneLine(after),
		write: func(number int, text func(from, to int) string) string {
			return write(number, func(part ast.Node) string { return text(v.offset(part.Pos()), v.offset(part.End())) })
		},
	})
}

// oneLine shortens source for the table.
func oneLine(s string) string {
	const most = 90
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// expression adds a mutation of a boolean expression. Only the version that is
// switched on is evaluated.
func (v *visitor) expression(kind string, n ast.Expr, mutated func(text func(ast.Node) string) string) {
	if v.info.Types[n].Value != nil {
		return // the compiler evaluates constants
	}
	v.add(kind, n, mutated(v.text), func(number int, text func(ast.Node) string) string {
		return fmt.Sprintf("(func() bool { if peerMutant(%d) { return %s }; return %s }())", number, mutated(text), text(n))
	})
}

// binary mutates comparisons, logical and arithmetic operators.
func (v *visitor) binary(n *ast.BinaryExpr) {
	with := func(op string) func(text func(ast.Node) string) string {
		return func(text func(ast.Node) string) string { return text(n.X) + " " + op + " " + text(n.Y) }
	}
	switch n.Op {
	case token.LSS:
		v.expression("comparison", n, with("<="))
		v.expression("comparison", n, with(">="))
	case token.LEQ:
		v.expression("comparison", n, with("<"))
		v.expression("comparison", n, with(">"))
	case token.GTR:
		v.expression("comparison", n, with(">="))
		v.expression("comparison", n, with("<="))
	case token.GEQ:
		v.expression("comparison", n, with(">"))
		v.expression("comparison", n, with("<"))
	case token.EQL:
		v.expression("comparison", n, with("!="))
	case token.NEQ:
		v.expression("comparison", n, with("=="))
	case token.LAND:
		v.expression("logical", n, with("||"))
		v.expression("logical", n, func(text func(ast.Node) string) string { return text(n.X) })
		v.expression("logical", n, func(text func(ast.Node) string) string { return text(n.Y) })
	case token.LOR:
		v.expression("logical", n, with("&&"))
		v.expression("logical", n, func(text func(ast.Node) string) string { return text(n.X) })
		v.expression("logical", n, func(text func(ast.Node) string) string { return text(n.Y) })
	case token.ADD, token.SUB, token.MUL, token.QUO:
		v.arithmetic(n)
	default: // bit operations and shifts
	}
}

// arithmetic replaces a number's operator by its opposite.
func (v *visitor) arithmetic(n *ast.BinaryExpr) {
	t := v.info.TypeOf(n)
	basic, ok := t.Underlying().(*types.Basic)
	spelled, can := v.spell(t)
	if !ok || !can || basic.Info()&types.IsNumeric == 0 || v.info.Types[n].Value != nil || basic.Info()&types.IsUntyped != 0 {
		return
	}
	opposite := map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "+", token.QUO: "*"}[n.Op]
	v.add("arithmetic", n, v.text(n.X)+" "+opposite+" "+v.text(n.Y), func(number int, text func(ast.Node) string) string {
		return fmt.Sprintf("(func() %s { if peerMutant(%d) { return %s %s %s }; return %s }())",
			spelled, number, text(n.X), opposite, text(n.Y), text(n))
	})
}

// constant replaces a literal number by the next one, and a text by a longer one.
func (v *visitor) constant(n *ast.BasicLit) {
	t := v.info.TypeOf(n)
	if t == nil {
		return
	}
	spelled, can := v.spell(t)
	if !can {
		return
	}
	after := ""
	switch n.Kind {
	case token.INT:
		after = n.Value + " + 1"
	case token.STRING:
		s, err := strconv.Unquote(n.Value)
		if err != nil {
			return
		}
		after = strconv.Quote(s + "!")
	default:
		return
	}
	v.add("constant", n, after, func(number int, _ func(ast.Node) string) string {
		return fmt.Sprintf("peerMutantValue[%s](%d, %s, %s)", spelled, number, after, n.Value)
	})
}

// returns replaces each result of a return statement by its zero value, and a
// boolean by its opposite.
func (v *visitor) returns(n *ast.ReturnStmt, results *types.Tuple) {
	if len(n.Results) != results.Len() {
		return
	}
	for i, r := range n.Results {
		with, can := v.other(r, results.At(i).Type())
		if !can {
			continue
		}
		var parts []string
		for j, r := range n.Results {
			parts = append(parts, v.text(r))
			if i == j {
				parts[j] = with
			}
		}
		mutated := "return " + strings.Join(parts, ", ")
		v.add("return", n, mutated, func(number int, text func(ast.Node) string) string {
			return fmt.Sprintf("if peerMutant(%d) { %s }; %s", number, mutated, text(n))
		})
	}
}

// other returns an expression of type t that is not e.
func (v *visitor) other(e ast.Expr, t types.Type) (string, bool) {
	text := v.text(e)
	if basic, ok := t.Underlying().(*types.Basic); ok && basic.Info()&types.IsBoolean != 0 {
		return "!(" + text + ")", true
	}
	spelled, can := v.spell(t)
	if !can || text == "nil" || text == "0" || text == `""` || strings.HasSuffix(text, "{}") {
		return "", false
	}
	return "*new(" + spelled + ")", true
}

// statements removes assignments, increments and calls, one at a time.
func (v *visitor) statements(list []ast.Stmt) {
	for _, s := range list {
		kind := ""
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				kind = "assignment"
			}
		case *ast.IncDecStmt:
			kind = "assignment"
		case *ast.ExprStmt:
			if _, ok := s.X.(*ast.CallExpr); ok && !strings.Contains(v.text(s), "Lock()") {
				kind = "call"
			}
		case *ast.BranchStmt:
			if s.Label == nil && s.Tok != token.FALLTHROUGH {
				kind = "branch"
			}
		}
		if kind != "" {
			v.leaveOut(kind, s)
		}
	}
}

func (v *visitor) leaveOut(kind string, s ast.Stmt) {
	v.add(kind, s, "left out", func(number int, text func(ast.Node) string) string {
		return fmt.Sprintf("if !peerMutant(%d) { %s }", number, text(s))
	})
}

// fields removes the fields of a composite literal, one at a time.
func (v *visitor) fields(n *ast.CompositeLit) {
	if _, ok := v.info.TypeOf(n).Underlying().(*types.Struct); !ok {
		return
	}
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		field, ok := v.info.Uses[kv.Key.(*ast.Ident)].(*types.Var)
		if !ok {
			continue
		}
		spelled, can := v.spell(field.Type())
		if !can {
			continue
		}
		v.add("field", kv.Value, "field "+field.Name()+" forgotten", func(number int, text func(ast.Node) string) string {
			return fmt.Sprintf("peerMutantValue[%s](%d, *new(%s), %s)", spelled, number, spelled, text(kv.Value))
		})
	}
}

// spell returns the source of a type in this file, if it can be written there.
func (v *visitor) spell(t types.Type) (string, bool) {
	can := true
	text := types.TypeString(t, func(p *types.Package) string {
		if p == v.pkg {
			return ""
		}
		for _, spec := range v.file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err == nil && path == p.Path() {
				if spec.Name != nil {
					return spec.Name.Name
				}
				return p.Name()
			}
		}
		can = false
		return ""
	})
	if basic, ok := t.(*types.Basic); ok && basic.Info()&types.IsUntyped != 0 || text == "invalid type" {
		can = false
	}
	return text, can
}
