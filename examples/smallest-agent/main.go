// Smallest-agent is a minimal node agent. It runs the pods of a folder of manifests on a runtime
// in memory, and prints each change of a pod's status.
//
//	go run ./examples/smallest-agent DIR
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
	"github.com/kubeparts/kubeparts/status"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: smallest-agent DIR")
	}
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	if err != nil {
		return err
	}
	manifests, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: args[0], NodeName: "node1"})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Config{
		Name:     "smallest-agent",
		NodeName: "node1",
		Runtime:  node,
		Host:     fakehost.New(node),
		Sources:  []agent.Source{{Name: "file", Run: manifests.Run}},
		Observers: agent.Observers{Statuses: status.Observer{StatusChanged: func(c status.Change) {
			fmt.Fprintln(out, c.Pod.Name, c.New.Phase, c.New.Reason, c.New.PodIP)
		}}},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
