// Command clusternode is the node of a vendor in a cluster, built on package agent/cluster. It
// offers two dongles as the extended resource example.com/dongle, and admits only the pods of
// one namespace.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	criclient "github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "clusternode: %v\n", err)
		os.Exit(1)
	}
}

// run runs the node with the options of the command line until ctx is done.
func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("clusternode", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "file with the credentials of the node")
	nodeName := flags.String("node-name", "", "name of the node")
	endpoint := flags.String("runtime", "", "address of the container runtime")
	root := flags.String("root", "", "folder of the agent")
	namespace := flags.String("tenant", "", "namespace whose pods may run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	runtime, err := criclient.New(criclient.Config{Endpoint: *endpoint})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	credentials, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(credentials)
	if err != nil {
		return err
	}
	return join(ctx, client, tenant(*namespace), agent.Config{NodeName: *nodeName, Runtime: runtime, Lister: runtime.Lister(), Root: *root, Logger: log})
}

// join runs an agent as a node of the cluster until ctx is done.
func join(ctx context.Context, client kubernetes.Interface, allowed tenant, config agent.Config) error {
	node, err := cluster.New(cluster.Config{Client: client, NodeName: config.NodeName, Logger: config.Logger})
	if err != nil {
		return err
	}
	stock := newDongles("a", "b")
	config.Name = "clusternode"
	config.Allocators = []resources.Allocator{stock}
	config.NodeStatus = stock.offer
	config.Admission = []lifecycle.NamedHandler{{Name: "tenant", Handler: allowed}}
	if err := node.Join(&config); err != nil {
		return err
	}
	a, err := agent.New(config)
	if err != nil {
		return err
	}
	return node.Run(ctx, a)
}

// tenant admits the pods of one namespace.
type tenant string

// Admit implements [lifecycle.AdmitHandler].
func (t tenant) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if attrs.Pod.Namespace == string(t) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return lifecycle.PodAdmitResult{Reason: "NoTenant", Message: fmt.Sprintf("namespace %q is not a tenant of this node", attrs.Pod.Namespace)}
}

// offer adds the dongles to the status of the node.
func (d *dongles) offer(node *corev1.Node) {
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		if list != nil {
			list[dongleResource] = d.total
		}
	}
}
