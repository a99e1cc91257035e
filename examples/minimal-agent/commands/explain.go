package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

func (p Program) explain() command {
	var conn connection
	var format output
	var in scope
	return command{
		name: "explain", args: "POD", summary: "explain why a pod is in its state, and what happens next",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			in.register(f)
			format.register(f, formatJSON, formatYAML)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("explain requires exactly one pod: %s explain POD", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			e, err := explainPod(ctx, client, in.arg(args[0]))
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
				fmt.Fprintln(p.Stdout, p.style().line(c, line))
			}
			return nil
		},
	}
}

// explainPod returns the explanation of the pod that matches arg. If no pod matches, it returns
// the explanation for the namespace and name in arg, because the manifest of that pod may have
// an error.
func explainPod(ctx context.Context, client *api.Client, arg string) (api.Explanation, error) {
	pod, err := find(ctx, client, arg)
	if missing, ok := errors.AsType[*noPodError](err); ok {
		if e, err := client.Explain(ctx, missing.namespace, missing.name); err == nil {
			return e, nil
		}
	}
	if err != nil {
		return api.Explanation{}, err
	}
	return client.Explain(ctx, pod.Namespace, pod.Name)
}
