package commands

import (
	"context"
	"fmt"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func (p Program) config() command {
	return command{
		name: "config", args: "validate FILE | dump [FLAGS OF run]", summary: "check a configuration file, or print the configuration that run would use",
		raw: true,
		complete: func(_ context.Context, args []string) []string {
			if len(args) == 0 {
				return []string{"validate", "dump"}
			}
			return nil
		},
		run: func(_ context.Context, args []string) error {
			switch {
			case len(args) == 2 && args[0] == "validate":
				return p.validate(args[1])
			case len(args) > 0 && args[0] == "dump":
				text, err := p.Dump(args[1:])
				if err != nil {
					return err
				}
				_, err = p.Stdout.Write(text)
				return err
			}
			return usagef("config requires validate FILE, or dump with the flags of run")
		},
	}
}

// validate checks a configuration file and prints the notes about it.
func (p Program) validate(file string) error {
	f, err := kubeletconfig.Load(file)
	if err != nil {
		return err
	}
	for _, note := range f.Notes {
		fmt.Fprintln(p.Stdout, printable.Line(fmt.Sprintf("%s: %v", file, note)))
	}
	fmt.Fprintln(p.Stdout, printable.Line(file+" is valid"))
	return nil
}
