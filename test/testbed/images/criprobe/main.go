// Command criprobe is the test bed's own CRI client.
//
//	criprobe -e SOCKET wait       until runtime and network are ready, at most a minute
//	criprobe -e SOCKET smoke      run one pod through its whole life and check it
//	criprobe -e SOCKET events     print the container event stream until interrupted
//	criprobe -e SOCKET cleanup    stop and remove every pod
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "criprobe:", err)
		os.Exit(1)
	}
}

// probe holds the clients of one runtime.
type probe struct {
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("criprobe", flag.ContinueOnError)
	endpoint := flags.String("e", os.Getenv("CRI_SOCKET"), "runtime socket")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(*endpoint, "unix://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	p := &probe{runtime: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn)}
	switch command := flags.Arg(0); command {
	case "wait":
		return p.wait(ctx)
	case "smoke":
		return p.smoke(ctx)
	case "events":
		return p.events(ctx)
	case "cleanup":
		return p.cleanup(ctx)
	default:
		return fmt.Errorf("unknown command %q: wait, smoke, events or cleanup", command)
	}
}

// wait returns nil when the runtime and its network are ready.
func (p *probe) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		case <-tick.C:
		}
	}
}

func (p *probe) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := p.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range st.GetStatus().GetConditions() {
		required := c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady
		if required && !c.GetStatus() {
			return fmt.Errorf("%s: %s %s", c.GetType(), c.GetReason(), c.GetMessage())
		}
	}
	return nil
}

// events prints the event stream. containerd has two peculiarities. Without a subscriber it
// buffers events for five minutes and sends all of them to the next subscriber. With several
// subscribers it sends each event to them one after the other, so a subscriber that does not
// read blocks all others.
func (p *probe) events(ctx context.Context) error {
	stream, err := p.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		e, err := stream.Recv()
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			// The runtime also sends events about the sandbox itself, with the sandbox's ID
			// as the container ID.
			fmt.Println(time.Unix(0, e.GetCreatedAt()).Format(time.RFC3339Nano), e.GetContainerEventType(),
				e.GetPodSandboxStatus().GetMetadata().GetName(), e.GetContainerId())
		}
	}
	return nil // an interrupt ends the command
}

// cleanup stops and removes every pod, without a grace period, and returns all errors.
func (p *probe) cleanup(ctx context.Context) error {
	list, err := p.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	// Eight at a time, because stopping a pod consists mostly of waiting.
	slots, results := make(chan struct{}, 8), make(chan error)
	for _, s := range list.GetItems() {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results <- p.remove(ctx, s.GetId())
		}()
	}
	var errs []error
	for range list.GetItems() {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// remove removes one pod in any state.
func (p *probe) remove(ctx context.Context, sandbox string) error {
	containers, err := p.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox},
	})
	if err != nil {
		return fmt.Errorf("pod %s: %w", sandbox, err)
	}
	for _, c := range containers.GetContainers() {
		if _, err := p.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.GetId()}); err != nil {
			return fmt.Errorf("container %s: %w", c.GetId(), err)
		}
	}
	if _, err := p.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return fmt.Errorf("pod %s: %w", sandbox, err)
	}
	_, err = p.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return err
}
