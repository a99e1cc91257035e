// Package expansion expands references to variables in the fields of pods, by the rule of
// Kubernetes for env, command, args and subPathExpr.
package expansion

import (
	"fmt"
	"strings"
)

// MaxBytes is the maximum total size of a container's environment, command and arguments.
// Linux never starts a program with more, whatever its resource limits are (execve(2)).
const MaxBytes = 6 << 20

// ErrTooLong is returned for a text that would be longer than [MaxBytes] after the
// expansion. Without this limit, the expansion of a few variables that refer to each
// other could use all memory.
type ErrTooLong struct {
	// What names the text, for example by the field of the pod.
	What string
}

// Error returns a message for the author of the pod.
func (e ErrTooLong) Error() string {
	return fmt.Sprintf("%s: more than %d bytes with all $(NAME) references replaced", e.What, MaxBytes)
}

// Expand replaces each $(NAME) in s by the text that the given function returns for NAME.
// $$ is an escaped dollar, so $$(NAME) becomes $(NAME). If the result would be longer than
// limit bytes, Expand returns no text, and ok is false.
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
