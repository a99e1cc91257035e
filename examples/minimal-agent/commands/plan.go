package commands

import (
	"context"
	"encoding/json"
	"flag"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

func (p Program) evict() command {
	return p.plan("evict", "show which pods would be evicted now, and why", "evicts pods by itself when the node runs short of a resource", (*api.Client).EvictionPlan)
}

func (p Program) gc() command {
	return p.plan("gc", "show which containers and images would be deleted now, and why", "deletes unused containers and images by itself", (*api.Client).GCPlan)
}

// plan returns a command that only shows what the agent would do now. If the user omits --dry-run,
// the command returns an error. The text of this error ends with the third parameter, which
// describes what the agent does by itself.
func (p Program) plan(name, summary, itself string, ask func(*api.Client, context.Context, api.Form) ([]byte, error)) command {
	var conn connection
	var format output
	dryRun := false
	return command{
		name: name, args: "--dry-run", summary: summary,
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			format.register(f, formatJSON, formatYAML)
			f.BoolVar(&dryRun, "dry-run", false, "required; the command only shows what would be done, and changes nothing")
		},
		run: func(ctx context.Context, args []string) error {
			if err := noArguments(args); err != nil {
				return err
			}
			if !dryRun {
				return usagef("%s requires --dry-run: the agent %s", name, itself)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			if !format.data() {
				text, err := ask(client, ctx, api.FormText)
				if err != nil {
					return err
				}
				return p.printText(string(text))
			}
			data, err := ask(client, ctx, api.FormJSON)
			if err != nil {
				return err
			}
			return p.print(format, json.RawMessage(data))
		},
	}
}
