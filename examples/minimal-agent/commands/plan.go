package commands

import (
	"context"
	"encoding/json"
	"flag"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

func (p Program) evict() command {
	return p.plan("evict", "what would be evicted now", "evicts pods by itself when the node runs short", (*api.Client).EvictionPlan)
}

func (p Program) gc() command {
	return p.plan("gc", "what containers and images would be removed now", "removes what is not used by itself when the disk fills", (*api.Client).GCPlan)
}

// plan is a command that only ever looks: the agent does the thing itself, when it has
// to.
func (p Program) plan(name, does, itself string, ask func(*api.Client, context.Context, api.Form) ([]byte, error)) command {
	var conn connection
	var format output
	dryRun := false
	return command{
		name: name, args: "--dry-run", does: does,
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			format.register(f, formatJSON, formatYAML)
			f.BoolVar(&dryRun, "dry-run", false, "required: nothing is done")
		},
		run: func(ctx context.Context, args []string) error {
			if err := noArguments(args); err != nil {
				return err
			}
			if !dryRun {
				return usagef("there is only %s --dry-run: the agent %s", name, itself)
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
