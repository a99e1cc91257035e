package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/cluster/certificates"
	criclient "github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

const (
	// agentName marks the sandboxes and containers of the agent.
	agentName = "cluster-agent"
	// kubernetesVersion is the kubelet version whose behaviour the agent implements.
	kubernetesVersion = "v1.36.0"
	// connectTimeout is the maximum time for the runtime to answer the first call.
	connectTimeout = 10 * time.Second
)

// program is the agent with its connections and its servers.
type program struct {
	opts    options
	log     *slog.Logger
	level   *slog.LevelVar // of log
	metrics *metrics.Pages
	started time.Time

	runtime   *criclient.Client
	version   *runtimeapi.VersionResponse
	host      *host.Host
	manifests []interface{ Problems() []podsource.Problem }

	credentials *certificates.Client
	clients     clients
	serving     *certificates.Server // nil: the serving certificate is in files
	cluster     *cluster.Cluster
	agent       *agent.Agent
	server      *kubeletapi.Server
	port        atomic.Int32 // of the server; 0 before it listens
}

// logger is a logger with its level.
type logger struct {
	*slog.Logger
	level *slog.LevelVar
}

// clients are the clients of the API server.
type clients struct{ main, heartbeats, events kubernetes.Interface }

// newProgram connects to the runtime, reads or requests the credentials of the node, and creates all
// parts of the program. It starts none of them.
func newProgram(ctx context.Context, o options, connect connectors, log logger) (_ *program, err error) {
	p := &program{opts: o, log: log.Logger, level: log.level, started: time.Now()}
	if p.metrics, err = metrics.NewPages(p.log); err != nil {
		return nil, err
	}
	if err := p.connectRuntime(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.runtime.Close())
		}
	}()
	if err := p.connectCluster(ctx, connect); err != nil {
		return nil, err
	}
	cfg, err := p.agentConfig()
	if err != nil {
		return nil, err
	}
	if err := p.cluster.Join(&cfg); err != nil {
		return nil, err
	}
	if p.agent, err = agent.New(cfg); err != nil {
		return nil, err
	}
	p.metrics.AddAgent(p.agent)
	server, err := p.serverConfig()
	if err != nil {
		return nil, err
	}
	p.server, err = kubeletapi.New(server)
	return p, err
}

// connectRuntime connects to the container runtime.
func (p *program) connectRuntime(ctx context.Context) error {
	endpoint := p.opts.ContainerRuntimeEndpoint
	client, err := criclient.New(criclient.Config{Endpoint: endpoint, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(p.metrics.CallObserver())}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if p.version, err = client.Version(ctx, "v1"); err != nil {
		return errors.Join(fmt.Errorf("connect to the CRI runtime at %s: %w", endpoint, err), client.Close())
	}
	p.runtime = client
	return nil
}

// connectCluster reads or requests the credentials of the node, and creates the clients.
func (p *program) connectCluster(ctx context.Context, connect connectors) error {
	o := p.opts
	var err error
	p.credentials, err = certificates.Connect(ctx, certificates.ClientConfig{
		Kubeconfig: o.kubeconfig, Bootstrap: o.bootstrapKubeconfig, Dir: o.certDir,
		NodeName: o.nodeName, Rotate: o.RotateCertificates, Logger: p.log,
	})
	if err != nil {
		return err
	}
	var errs []error
	with := func(qps, burst int32) kubernetes.Interface {
		config := p.credentials.Config()
		config.QPS, config.Burst, config.UserAgent = float32(qps), int(burst), agentName+"/"+version()
		config.ContentType, config.AcceptContentTypes = o.ContentType, o.ContentType+",application/json"
		client, err := connect.client(config)
		errs = append(errs, err)
		return client
	}
	p.clients = clients{main: with(o.KubeAPIQPS, o.KubeAPIBurst), heartbeats: with(-1, 0), events: with(o.EventRecordQPS, o.EventBurst)}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("create a client of the API server: %w", err)
	}
	var store state.Store
	if o.checkpoint {
		store = state.Files(o.rootDir)
	}
	p.cluster, err = cluster.New(cluster.Config{
		State:  store,
		Client: p.clients.main, Heartbeats: p.clients.heartbeats, Events: p.clients.events, NodeName: o.nodeName,
		NoRegistration: !o.RegisterNode, Labels: o.nodeLabels, Taints: o.RegisterWithTaints, ProviderID: o.ProviderID,
		StatusPeriod: o.NodeStatusUpdateFrequency.Duration, ReportPeriod: o.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(o.NodeLeaseDurationSeconds) * time.Second, Logger: p.log,
	})
	return err
}

// agentConfig makes the agent's configuration from the options of the program.
func (p *program) agentConfig() (agent.Config, error) {
	o, policies := p.opts, p.opts.policies
	var err error
	if p.host, err = p.newHost(); err != nil {
		return agent.Config{}, err
	}
	sources, err := p.sources()
	return agent.Config{
		Name: agentName, NodeName: o.nodeName, Version: version(),
		Runtime: p.runtime, Lister: p.runtime.Lister(), Host: p.host, Sources: sources,
		// Like a kubelet, the agent stops pods that it does not know, and deletes their logs.
		TakeOver: true,
		Root:     o.rootDir, PodLogs: p.podLogs(), ContainerLogs: p.containerLogs(),
		NodeStatus: p.completeNode, MaxNodeImages: int(o.NodeStatusMaxImages),
		MaxPods: policies.MaxPods, Reserved: policies.Reserved,
		Pods: policies.Pods, Images: policies.Images, Restarts: policies.Restarts, SyncPeriod: policies.SyncPeriod,
		Eviction: policies.Eviction, ImageGC: policies.ImageGC, Logs: policies.Logs,
		// The kubelet's defaults.
		ContainerGC: containergc.Policy{MaxPerPodContainer: new(1), MaxContainers: new(-1)},
		Cgroups:     policies.Cgroups, EnforceAllocatable: policies.EnforceAllocatable,
		Observers: p.metrics.Observers(agent.Observers{}),
		Logger:    p.log,
	}, err
}

// completeNode adds the port of the kubelet API to the node. If nodeStatusMaxImages is 0, it
// removes the images.
func (p *program) completeNode(n *corev1.Node) {
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = p.port.Load()
	if p.opts.NodeStatusMaxImages == 0 { // for agent.Config.MaxNodeImages, 0 means the default
		n.Status.Images = []corev1.ContainerImage{}
	}
}

// podLogs returns the folder of the pods' logs.
func (p *program) podLogs() string {
	if dir := p.opts.PodLogsDir; dir != "" {
		return dir
	}
	return filepath.Join(p.opts.rootDir, "logs")
}

// containerLogs returns the folder in which the agent creates links to the container logs, for log
// shippers. If the pods' logs are in /var/log/pods, this is /var/log/containers, as in the kubelet.
// If the logs are in another folder, this is a folder below the root directory.
func (p *program) containerLogs() string {
	if dir := p.podLogs(); dir != "/var/log/pods" {
		return filepath.Join(p.opts.rootDir, "containers")
	}
	return containergc.DefaultContainerLogs
}

// newHost returns the host.Host of this machine.
func (p *program) newHost() (*host.Host, error) {
	o, policies := p.opts, p.opts.policies
	c := host.LocalConfig{
		Runtime: p.runtime, Images: p.runtime, NodeName: o.nodeName,
		Root: o.rootDir, PodLogs: p.podLogs(), ResolvConf: o.ResolverConfig, NoLookups: o.ResolverConfig == "",
		Thresholds: policies.Eviction.Thresholds, VolumePeriod: policies.VolumePeriod, UsageEvents: policies.UsageEvents,
		Logger: p.log,
	}
	if policies.Cgroups != nil {
		c.PodsCgroup = path.Join("/", policies.Cgroups.Parent, "kubepods")
	}
	h, err := host.Local(c)
	if err != nil || len(o.nodeIPs) == 0 {
		return h, err
	}
	facts := h.Facts
	h.Facts = func(ctx context.Context) (host.Facts, error) {
		f, err := facts(ctx)
		f.Addresses = o.nodeIPs
		return f, err
	}
	return h, nil
}

// sources returns the sources of static pods.
func (p *program) sources() (sources []agent.Source, err error) {
	o := p.opts
	if o.StaticPodPath != "" {
		folder, err := podsource.NewDirectory(podsource.DirectoryConfig{
			Path: o.StaticPodPath, NodeName: o.nodeName, Period: o.FileCheckFrequency.Duration, Logger: p.log,
		})
		if err != nil {
			return nil, err
		}
		sources, p.manifests = append(sources, agent.Source{Name: podspec.SourceFile, Run: folder.Run}), append(p.manifests, folder)
	}
	if o.StaticPodURL != "" {
		url, err := podsource.NewHTTP(podsource.HTTPConfig{
			URL: o.StaticPodURL, Header: o.StaticPodURLHeader, Period: o.HTTPCheckFrequency.Duration, NodeName: o.nodeName, Logger: p.log,
		})
		if err != nil {
			return nil, err
		}
		sources, p.manifests = append(sources, agent.Source{Name: podspec.SourceHTTP, Run: url.Run}), append(p.manifests, url)
	}
	return sources, nil
}

// run runs the program until ctx is done or one of its parts returns. It then stops the other
// parts, waits for them, and returns the errors of all parts.
func (p *program) run(ctx context.Context) error {
	parts, err := p.listen(ctx)
	if err != nil {
		return err
	}
	parts = append(parts, func(ctx context.Context) error { return p.cluster.Run(ctx, p.agent) }, waits(p.credentials.Run))
	if p.serving != nil {
		parts = append(parts, waits(p.serving.Run))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() {
			defer stop()
			ended <- part(ctx)
		}()
	}
	for range parts {
		err = errors.Join(err, <-ended)
	}
	return err
}

// waits returns a part that calls the function run. If run returns an error, the part returns that
// error. If run returns nil, the part waits until ctx is done, because the program stops when any
// part returns.
func waits(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
}

// listen opens the listeners of the HTTP servers. For each listener, it returns a function that
// serves it.
func (p *program) listen(ctx context.Context) (serve []func(context.Context) error, err error) {
	o := p.opts
	main, err := p.server.Listen(ctx, address(o.Address, o.Port))
	if err != nil {
		return nil, fmt.Errorf("listen for the kubelet API: %w", err)
	}
	if addr, ok := main.Addr().(*net.TCPAddr); ok {
		p.port.Store(int32(addr.Port))
	}
	opened := []net.Listener{main}
	p.log.InfoContext(ctx, "serving the kubelet API", "address", main.Addr().String())
	serve = append(serve, func(ctx context.Context) error { return p.server.Run(ctx, main) })
	for _, more := range []struct {
		field, host string
		port        int32
		run         func(context.Context, net.Listener) error
	}{
		{"healthzPort", o.HealthzBindAddress, o.HealthzPort, p.server.RunHealth},
		{"readOnlyPort", o.Address, o.ReadOnlyPort, p.server.RunReadOnly},
	} {
		if more.port == 0 {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address(more.host, more.port))
		if err != nil {
			for _, l := range opened {
				err = errors.Join(err, l.Close())
			}
			return nil, fmt.Errorf("%s: %w", more.field, err)
		}
		opened = append(opened, listener)
		serve = append(serve, func(ctx context.Context) error { return more.run(ctx, listener) })
	}
	return serve, nil
}

// version returns the version that the node reports. Clients compare it with versions of Kubernetes.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return kubernetesVersion + "+kubeparts"
	}
	return kubernetesVersion + "+kubeparts." + buildVersion(info.Main.Version)
}

// buildVersion returns v in the form of build metadata of a semantic version:
// it replaces each + and - with a dot.
func buildVersion(v string) string {
	text := []byte(v)
	for i, c := range text {
		if c == '+' || c == '-' {
			text[i] = '.'
		}
	}
	return string(text)
}
