package housetest

import (
	"regexp"
	"strings"
)

// A word is a pattern that no committed file may contain.
type word struct {
	pattern *regexp.Regexp
	instead string
}

// words returns the forbidden words. The patterns do not match their own source.
func words() []word {
	return []word{
		{regexp.MustCompile(`(?:^|[^.\w])TO(?:DO)\b(?:[:( ]|$)|\bFIX(?:ME)\b`), "unfinished: finish it, or file an issue"},
		{regexp.MustCompile(`(?:^|[^\w.})*])/(?:work|farm|root)/`), "a path of one machine: take it from a flag or a variable"},
		{
			regexp.MustCompile(`https?://(?:proxy|registry|deb|ftp|security)\.|\b(?:proxy|sum|registry|deb|security)\.(?:golang|npmjs|debian)\.org`),
			"a package registry's host: leave it to the configured client",
		},
		{regexp.MustCompile(`\bshared/(?:facts|testbed)|\.\./shared\b|\bfacts/[a-z-]+\.md`), "a file outside this repository: say it here"},
	}
}

// checkWords finds text that must not be committed. In the scripts that test checkWords, a
// veil divides such text.
func checkWords(m *module) (found []finding) {
	rules := words()
	for _, file := range m.texts {
		n := 0
		for line := range strings.Lines(string(file.data)) {
			n++
			for _, w := range rules {
				if hit := w.pattern.FindString(strings.TrimSpace(line)); hit != "" {
					found = append(found, finding{file.path, n, strings.Trim(hit, ` :("'=`) + ": " + w.instead})
				}
			}
		}
	}
	return found
}
