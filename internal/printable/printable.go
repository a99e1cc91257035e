// Package printable makes text from containers, runtimes and manifests safe to print, so
// that it can neither start a new line nor control a terminal.
package printable

import (
	"strings"
	"unicode"
)

// Line returns text as one line. A space replaces each control character (Cc), format
// character (Cf, such as those that change the direction of text), line separator and
// paragraph separator; U+FFFD replaces each invalid byte.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
}

// Lines applies [Line] to each line of text and removes trailing spaces. Only "\n" ends a
// line. Each line after the first begins with indent, so that a reader can distinguish it
// from the next item.
func Lines(text, indent string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if i > 0 {
			line = indent + line
		}
		lines[i] = strings.TrimRight(Line(line), " ")
	}
	return strings.Join(lines, "\n")
}
