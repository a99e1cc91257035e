package commands

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
)

func (p Program) explain() command {
	var conn connection
	var format output
	return command{
		name: "explain", args: "POD", does: "why a pod is as it is, and what comes next",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			format.register(f, formatJSON, formatYAML)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("explain wants one pod: %s explain POD", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			pod, err := find(ctx, client, args[0])
			if err != nil {
				return err
			}
			e, err := client.Explain(ctx, pod.Namespace, pod.Name)
			switch {
			case err != nil:
				return err
			case format.data():
				return p.print(format, e)
			}
			for line := range strings.Lines(api.ExplanationText(e)) {
				c := plain
				if !strings.HasPrefix(line, " ") && strings.HasSuffix(line, ":\n") {
					c = bold
				}
				fmt.Fprintln(p.Stdout, p.look().line(c, line))
			}
			return nil
		},
	}
}
