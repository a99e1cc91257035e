// Command clusternode is the node of a vendor in a cluster, built on package agent/cluster. It
// offers two dongles as the extended resource example.com/dongle, and rejects the pods of all
// namespaces but one.
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
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the credentials of the node")
	flag.StringVar(&o.nodeName, "node-name", "", "name of the node")
	flag.StringVar(&o.runtime, "runtime", "", "address of the container runtime")
	flag.StringVar(&o.root, "root", "", "folder of the agent")
	flag.StringVar(&o.tenant, "tenant", "", "namespace whose pods may run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "clusternode: %v\n", err)
		os.Exit(1)
	}
}

type options struct{ kubeconfig, nodeName, runtime, root, tenant string }

// run runs the node until ctx is done.
func run(ctx context.Context, o options) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	runtime, err := criclient.New(criclient.Config{Endpoint: o.runtime})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	credentials, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(credentials)
	if err != nil {
		return err
	}
	node, err := cluster.New(cluster.Config{Client: client, NodeName: o.nodeName, Logger: log})
	if err != nil {
		return err
	}
	stock := newDongles("a", "b")
	config := agent.Config{
		Name: "clusternode", NodeName: o.nodeName, Runtime: runtime, Lister: runtime.Lister(), Root: o.root, Logger: log,
		Allocators: []resources.Allocator{stock},
		NodeStatus: stock.offer,
		Admission:  []lifecycle.NamedHandler{{Name: "tenant", Handler: tenant(o.tenant)}},
	}
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
