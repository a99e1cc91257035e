package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
)

const (
	// agentName is the name of each agent. The header User-Agent of its clients is agentName/NODE.
	agentName = "hollow-nodes"
	// version is the version that the nodes report. It begins with a version of Kubernetes, because
	// clients parse it.
	version = "v1.36.0+kubeparts"
	// clusterDNS is the DNS server in the DNS configuration of pods. No process uses it, because the
	// containers are simulated.
	clusterDNS = "192.0.2.53"
	// podNetworkBits is the prefix length of a node's pod CIDR.
	podNetworkBits = 22
)

// shared is what all nodes have in common.
type shared struct {
	options

	credentials *rest.Config
	newClient   clientFunc
	dir         string // contains the root folder of each node
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	log         *slog.Logger
}

// hollowNode is a node of the cluster. Its agent uses a simulated runtime in memory.
type hollowNode struct {
	name    string
	cluster *cluster.Cluster
	agent   *agent.Agent
}

// run runs the node until ctx is done.
func (n *hollowNode) run(ctx context.Context) error { return n.cluster.Run(ctx, n.agent) }

// newNode creates a node. It starts nothing.
func (s *shared) newNode(index int) (*hollowNode, error) {
	n := &hollowNode{name: s.nodeName(index)}
	log := s.log.With("node", n.name)
	runtime, err := fakecri.New(fakecri.Config{
		PullAny: true, ProgramFor: programFor, PodNetwork: podNetwork(index), Seed: rand.Uint64(), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	main, heartbeats, events, err := s.clients(n.name)
	if err != nil {
		return nil, err
	}
	n.cluster, err = cluster.New(cluster.Config{
		Client: main, Heartbeats: heartbeats, Events: events,
		NodeName: n.name, Labels: s.labels, Taints: s.taints, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	cfg := agent.Config{
		Name: agentName, NodeName: n.name, Version: version,
		Runtime: runtime, Host: s.host(runtime, index),
		Root: filepath.Join(s.dir, n.name), State: state.Memory(),
		MaxPods: s.policies.MaxPods, Pods: s.policies.Pods, Images: s.policies.Images, Restarts: s.policies.Restarts,
		SyncPeriod: s.policies.SyncPeriod, Eviction: s.policies.Eviction, ImageGC: s.policies.ImageGC,
		ContainerGC: containergc.Policy{MaxPerPodContainer: new(1), MaxContainers: new(-1)}, // the kubelet's defaults
		Logger:      log,
	}
	if err := n.cluster.Join(&cfg); err != nil {
		return nil, err
	}
	for i := range cfg.Sources {
		cfg.Sources[i].Run = hollowed(cfg.Sources[i].Run)
	}
	n.agent, err = agent.New(cfg)
	return n, err
}

// clients returns the clients of a node. Their rate limits are those of a kubelet. The clients of all
// nodes share connections, because client-go caches them.
func (s *shared) clients(name string) (main, heartbeats, events kubernetes.Interface, err error) {
	var errs []error
	with := func(qps, burst int32) kubernetes.Interface {
		config := rest.CopyConfig(s.credentials)
		config.QPS, config.Burst, config.UserAgent = float32(qps), int(burst), agentName+"/"+name
		config.ContentType, config.AcceptContentTypes = s.settings.ContentType, s.settings.ContentType+",application/json"
		client, err := s.newClient(config)
		errs = append(errs, err)
		return client
	}
	main, heartbeats, events = with(s.settings.KubeAPIQPS, s.settings.KubeAPIBurst), with(-1, 0), with(s.settings.EventRecordQPS, s.settings.EventBurst)
	if err := errors.Join(errs...); err != nil {
		return nil, nil, nil, fmt.Errorf("create a client of the API server: %w", err)
	}
	return main, heartbeats, events, nil
}

// host returns the machine of a node. Its boot ID is new in each process, because the containers of
// an earlier process do not exist any more, as after a reboot.
func (s *shared) host(runtime *fakecri.Node, index int) *host.Host {
	h := fakehost.New(runtime)
	h.Dial = s.dial
	facts, bootID := h.Facts, string(uuid.NewUUID())
	h.Facts = func(ctx context.Context) (host.Facts, error) {
		f, err := facts(ctx)
		f.Capacity[corev1.ResourceCPU], f.Capacity[corev1.ResourceMemory] = s.cpu, s.memory
		f.Addresses = []netip.Addr{address(index)}
		f.Info.MachineID, f.Info.SystemUUID, f.Info.BootID = s.nodeName(index), s.nodeName(index), bootID
		return f, err
	}
	return h
}

// podNetwork returns the pod CIDR of a node, a part of 10.0.0.0/8.
func podNetwork(index int) netip.Prefix {
	n := index << (32 - podNetworkBits)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), podNetworkBits)
}

// address returns the address of a node, in the network for benchmarks of RFC 2544.
func address(index int) netip.Addr {
	n := index + 1
	return netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)})
}
