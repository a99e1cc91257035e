// Package printable makes text from containers, runtimes and manifests safe to print: the
// printed text can neither start a new line nor control a terminal.
package printable

import (
	"strings"
	"unicode"
)

// Line returns text as one line. It replaces each control character (Cc), each format
// character (Cf, such as the characters that change the direction of text), each line
// separator and each paragraph separator by a space. It replaces each invalid byte by
// U+FFFD.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
}

// Lines applies [Line] to each line of text and removes trailing spaces. Only "\n" ends a
// line. Lines puts the text indent in front of each line after the first line, so that a
// reader can distinguish these lines from the next item.
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
