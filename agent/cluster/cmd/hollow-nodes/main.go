// Command hollow-nodes runs many nodes of a Kubernetes cluster in one process, without machines and
// without containers. It is for tests of schedulers, autoscalers and controllers. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr, func(c *rest.Config) (kubernetes.Interface, error) { return kubernetes.NewForConfig(c) })
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "hollow-nodes: %v\n", err)
		os.Exit(1)
	}
}

// clientFunc returns a client of the API server. Tests have their own.
type clientFunc func(*rest.Config) (kubernetes.Interface, error)

// run runs the nodes with the flags in args until ctx is done. It writes the log, and with --help
// the list of flags, to stderr.
func run(ctx context.Context, args []string, stderr io.Writer, newClient clientFunc) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	credentials, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	dir, err := os.MkdirTemp("", "hollow-nodes-")
	if err != nil {
		return fmt.Errorf("create the folder of the pods' volumes: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	answers := newAnswers(ctx)
	defer answers.close()
	common := shared{
		options: o, credentials: credentials, newClient: newClient, dir: dir, dial: answers.dial,
		log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.logLevel()})),
	}
	nodes := make([]*hollowNode, o.nodes)
	for i := range nodes {
		if nodes[i], err = common.newNode(i); err != nil {
			return fmt.Errorf("create node %s: %w", o.nodeName(i), err)
		}
	}
	log.InfoContext(ctx, "starting hollow nodes", "nodes", o.nodes, "first", o.nodeName(0), "last", o.nodeName(o.nodes-1), "dir", dir)
	return runAll(ctx, log, nodes)
}

// runAll runs the nodes until ctx is done or all nodes have stopped. A node that stops does not stop
// the other nodes.
func runAll(ctx context.Context, log *slog.Logger, nodes []*hollowNode) error {
	var wg sync.WaitGroup
	var failed atomic.Int64
	for _, n := range nodes {
		wg.Go(func() {
			if err := n.run(ctx); err != nil {
				failed.Add(1)
				log.ErrorContext(ctx, "a hollow node has stopped, the other nodes keep running", "node", n.name, "err", err)
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d nodes have stopped with an error; the log has the errors", n, len(nodes))
	}
	return nil
}
