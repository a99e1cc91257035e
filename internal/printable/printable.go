// Package printable makes text of containers, runtimes and manifests safe to print: it
// can neither begin a line of its own nor control a terminal.
package printable

import (
	"strings"
	"unicode"
)

// Line returns text as one line. A space replaces each control character (Cc), format
// character (Cf, such as those that turn the direction of text), line separator and
// paragraph separator; U+FFFD replaces each invalid byte.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
}

// Lines returns text whose lines are each as [Line] returns them, without spaces at
// their ends. Only "\n" ends a line. Each line after the first begins with indent, so
// that a reader can tell it from the next item.
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
