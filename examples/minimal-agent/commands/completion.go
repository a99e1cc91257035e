package commands

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// completeCommand is the command that the shell scripts call. Its arguments are the words of the
// command line up to the cursor. It prints the candidates for the last word.
const completeCommand = "__complete"

// completionTimeout is the maximum time that a shell waits for the names of pods.
const completionTimeout = time.Second

func (p Program) completion() command {
	return command{
		name: "completion", args: "bash | zsh | fish", summary: "print a completion script for a shell",
		complete: func(_ context.Context, args []string) []string {
			if len(args) == 0 {
				return []string{"bash", "zsh", "fish"}
			}
			return nil
		},
		run: func(_ context.Context, args []string) error {
			script := ""
			if len(args) == 1 {
				script = scripts()[args[0]]
			}
			if script == "" {
				return usagef("completion requires bash, zsh or fish, as in: source <(%s completion bash)", p.Name)
			}
			function := strings.ReplaceAll(p.Name, "-", "_")
			_, err := strings.NewReplacer("NAME", p.Name, "FUNCTION", function, "COMPLETE", completeCommand).WriteString(p.Stdout, script)
			return err
		},
	}
}

func scripts() map[string]string {
	return map[string]string{
		"bash": `_FUNCTION() {
    local IFS=$'\n'
    COMPREPLY=($("$1" COMPLETE "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _FUNCTION NAME
`,
		"zsh": `#compdef NAME
_FUNCTION() {
    local -a found
    found=(${(f)"$("${words[1]}" COMPLETE "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _FUNCTION NAME
`,
		"fish": `function __FUNCTION
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    $before[1] COMPLETE $before[2..-1] "$word" 2>/dev/null
end
complete -c NAME -a '(__FUNCTION)'
`,
	}
}

// candidates returns the completions of the last word.
func (p Program) candidates(ctx context.Context, words []string) []string {
	word := ""
	if len(words) > 0 {
		word, words = words[len(words)-1], words[:len(words)-1]
	}
	var all []string
	switch {
	case len(words) == 0 && !strings.HasPrefix(word, "-"):
		all = []string{"run", "help"}
		for _, c := range p.commands() {
			all = append(all, c.name)
		}
	case len(words) == 0 || words[0] == "run" || strings.HasPrefix(words[0], "-"), words[0] == "config" && slices.Contains(words, "dump"):
		all = p.RunFlags()
	default:
		all = p.candidatesOf(ctx, words[0], words[1:], word)
	}
	var matching []string
	for _, c := range all {
		if strings.HasPrefix(c, word) {
			matching = append(matching, c)
		}
	}
	slices.Sort(matching)
	return matching
}

func (p Program) candidatesOf(ctx context.Context, name string, before []string, word string) (all []string) {
	for _, c := range p.commands() {
		if c.name != name {
			continue
		}
		flags := c.flagSet()
		rest, err := parseMixed(flags, before)
		switch {
		case err != nil: // the word is the value of a flag, or the words before it are invalid
			return nil
		case strings.HasPrefix(word, "-"):
			flags.VisitAll(func(f *flag.Flag) { all = append(all, dashed(f.Name)) })
		case c.complete != nil:
			all = c.complete(ctx, rest)
		}
	}
	return all
}

// dashed returns a flag's name with one or two leading dashes.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// completePods returns a function that completes the first argument with the names of pods.
func (p Program) completePods(conn *connection) func(context.Context, []string) []string {
	return func(ctx context.Context, args []string) []string {
		if len(args) > 0 {
			return nil
		}
		client, err := conn.open()
		if err != nil {
			return nil
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		status, err := client.Status(ctx)
		if err != nil {
			return nil
		}
		var all []string
		for _, pod := range status.Pods {
			all = append(all, printable.Line(pod.Name), printable.Line(fullName(pod)))
		}
		return all
	}
}

func (p Program) version() command {
	return command{name: "version", summary: "print the version", run: func(_ context.Context, args []string) error {
		if err := noArguments(args); err != nil {
			return err
		}
		_, err := fmt.Fprintln(p.Stdout, p.Name, p.Version)
		return err
	}}
}
