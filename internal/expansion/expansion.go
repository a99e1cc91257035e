// Package expansion replaces references to variables in what pods say, by the rule of
// Kubernetes for env, command, args and subPathExpr.
package expansion

import (
	"fmt"
	"strings"
)

// MaxBytes is how long a container's environment, command and arguments can be together.
// Linux starts no program with more (execve(2)), whatever its limits are.
const MaxBytes = 6 << 20

// ErrTooLong is the error for what is longer than [MaxBytes] when its references are
// replaced: a few lines of variables that name each other can ask for all memory.
type ErrTooLong struct {
	// What is too long.
	What string
}

// Error returns a message for a pod's author.
func (e ErrTooLong) Error() string {
	return fmt.Sprintf("%s: more than %d bytes with all $(NAME) references replaced", e.What, MaxBytes)
}

// Expand replaces each $(NAME) in s by what value returns. $$ is a dollar, so that
// $$(NAME) stays as $(NAME). It reports false, and returns no text, when that would be
// longer than limit bytes.
func Expand(s string, limit int, value func(name string) string) (text string, ok bool) {
	var b strings.Builder
	write := func(part string) {
		if ok = b.Len()+len(part) <= limit; ok {
			b.WriteString(part)
		}
	}
	for {
		before, after, found := strings.Cut(s, "$")
		if write(before); !ok {
			return "", false
		}
		if !found {
			return b.String(), true
		}
		part, rest := "$", after
		if strings.HasPrefix(after, "$") {
			rest = after[1:]
		} else if name, behind, closed := strings.Cut(after, ")"); closed && strings.HasPrefix(name, "(") {
			part, rest = value(name[1:]), behind
		}
		if write(part); !ok {
			return "", false
		}
		s = rest
	}
}
