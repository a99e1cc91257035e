package housetest

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// checkPages finds links to missing files and headings, names of tests such as
// `prober.TestRedirects` that do not exist, and Go code that is not compiled. The info
// string of a block of Go code must have the file with its lines; a line "// ..." stands
// for omitted lines.
func checkPages(m *module) (found []finding) {
	for _, page := range m.texts {
		if path.Ext(page.path) != ".md" {
			continue
		}
		for _, block := range blocks(page) {
			if text := m.quoted(block); text != "" {
				found = append(found, finding{page.path, block.line, text})
			}
		}
		n := 0
		for line := range strings.Lines(prose(page)) {
			n++
			for _, link := range links(line) {
				if !m.hasTarget(page.path, link) {
					found = append(found, finding{page.path, n, link + ": no such file or heading"})
				}
			}
			for _, match := range namedTest.FindAllStringSubmatch(line, -1) {
				if !m.hasTest(match[1], match[2]) {
					found = append(found, finding{page.path, n, match[1] + "." + match[2] + ": no such test"})
				}
			}
		}
	}
	return found
}

// namedTest matches the name of a test in a page: its folder and its function.
var namedTest = regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)\\w+)`")

// hasTest reports whether the tests in a folder have a function with this name.
func (m *module) hasTest(folder, name string) bool {
	return slices.ContainsFunc(m.sources, func(s source) bool {
		return path.Dir(s.path) == folder && strings.HasSuffix(s.path, "_test.go") &&
			slices.ContainsFunc(s.file.Decls, func(d ast.Decl) bool {
				f, ok := d.(*ast.FuncDecl)
				return ok && f.Recv == nil && f.Name.Name == name
			})
	})
}

// A block is a fenced piece of code in a page: its info string and its lines.
type block struct {
	line int
	info string
	code []string
}

// blocks returns the fenced pieces of code of a page.
func blocks(page text) (all []block) {
	n, open := 0, false
	for line := range strings.Lines(string(page.data)) {
		n++
		line = strings.TrimRight(line, "\n")
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !open:
			all = append(all, block{line: n, info: info})
			open = true
		case fence:
			open = false
		case open:
			last := &all[len(all)-1]
			last.code = append(last.code, line)
		}
	}
	return all
}

// prose returns a page with its blocks replaced by empty lines.
func prose(page text) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(string(page.data)) {
		fence := strings.HasPrefix(line, "```")
		if inside || fence {
			line = "\n"
		}
		inside = inside != fence
		b.WriteString(line)
	}
	return b.String()
}

// quoted returns the problem of a block of Go code, or an empty string.
func (m *module) quoted(b block) string {
	language, file, _ := strings.Cut(b.info, " ")
	if language != "go" {
		return ""
	}
	if file == "" {
		return "Go code without a file: name the file with these lines, so that it is compiled"
	}
	i := slices.IndexFunc(m.texts, func(t text) bool { return t.path == file })
	if i < 0 {
		return file + ": no such file"
	}
	rest := "\n" + string(m.texts[i].data)
	var piece []string
	for _, line := range append(b.code, "// ...") {
		if strings.TrimSpace(line) != "// ..." {
			piece = append(piece, line)
			continue
		}
		_, after, ok := strings.Cut(rest, "\n"+strings.Join(piece, "\n")+"\n")
		if len(piece) > 0 && !ok {
			return file + ": it does not contain these lines: " + strings.TrimSpace(piece[0]) + " ..."
		}
		if len(piece) > 0 {
			rest = "\n" + after
		}
		piece = nil
	}
	return ""
}

// links returns the relative links of a line.
func links(line string) (all []string) {
	for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(line, -1) {
		if !strings.Contains(match[1], ":") {
			all = append(all, match[1])
		}
	}
	return all
}

// hasTarget reports whether the target of a link in a page exists.
func (m *module) hasTarget(page, link string) bool {
	file, heading, _ := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = path.Join(path.Dir(page), file)
	}
	return slices.ContainsFunc(m.texts, func(t text) bool {
		return t.path == target && (heading == "" || hasHeading(t, heading)) || heading == "" && within(t.path, target)
	}) || heading == "" && slices.Contains(m.others, target)
}

// hasHeading reports whether a page has a heading with this anchor on GitHub.
func hasHeading(page text, anchor string) bool {
	for line := range strings.Lines(prose(page)) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		name = strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return r
			}
			return -1
		}, name)
		if name == anchor {
			return true
		}
	}
	return false
}
