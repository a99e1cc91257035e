package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/cluster/access"
	"github.com/kubeparts/kubeparts/agent/cluster/certificates"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/agent/metrics"
)

// serverConfig returns the configuration of the kubelet API.
func (p *program) serverConfig() (kubeletapi.Config, error) {
	o := p.opts
	access, err := p.access()
	cfg := kubeletapi.Config{
		Agent:    p.agent,
		Info:     func() api.Agent { return api.Agent{Name: agentName, Version: version(), Started: p.started} },
		Runtime:  api.Runtime{Name: p.version.GetRuntimeName(), Version: p.version.GetRuntimeVersion(), Endpoint: o.ContainerRuntimeEndpoint},
		Problems: p.problems,
		Configz:  p.configz,
		Metrics:  p.metrics.Main(), ProbeMetrics: p.metrics.Probes(), SLIMetrics: p.metrics.Health(),
		ResourceMetrics: p.metrics.Resource(p.agent.Summary),
		Pprof:           o.EnableProfilingHandler && o.EnableDebuggingHandlers,
		NoDebugging:     !o.EnableDebuggingHandlers,
		Observer:        kubeletapi.Observer{Request: p.metrics.Request, Checked: p.metrics.Checked},
		Access:          access,
		Logger:          p.log,
	}
	if p.host.Cgroups != nil { // nil on operating systems without cgroups
		cfg.CadvisorMetrics = p.metrics.Cadvisor(metrics.CadvisorSource{Usage: p.host.Cgroups, Pods: p.agent.Pods, Node: p.agent.Node})
	}
	if o.EnableDebuggingHandlers && access.Authenticates() {
		cfg.PodLogs = p.podLogs()
		cfg.Streams, cfg.Operations, cfg.WebSocketStream = p.runtime, p.agent, p.metrics.WebSocketStream
		cfg.Checkpoints, cfg.CheckpointDir = p.runtime, filepath.Join(o.rootDir, "checkpoints")
		p.serveLogs(&cfg)
	}
	return cfg, err
}

// serveLogs enables the endpoints about logs that the settings permit: /debug/flags/v, /logs/ and the
// query of the journal.
func (p *program) serveLogs(cfg *kubeletapi.Config) {
	if p.opts.EnableDebugFlagsHandler {
		cfg.LogLevel = p.level
	}
	if p.opts.EnableSystemLogHandler {
		cfg.SystemLogs = "/var/log" // as in the kubelet
		if p.opts.EnableSystemLogQuery {
			cfg.Journal = kubeletapi.Journalctl
		}
	}
}

// access returns the settings for TLS, authentication and authorization of the kubelet API. The
// serving certificate is the file tlsCertFile. If tlsCertFile is not set and serverTLSBootstrap is
// true, the agent requests a certificate from the cluster. If neither is set, the agent creates a
// self-signed certificate.
func (p *program) access() (a kubeletapi.Access, err error) {
	o := p.opts
	a = kubeletapi.Access{CertFile: o.TLSCertFile, KeyFile: o.TLSPrivateKeyFile, ClientCAFile: o.Authentication.X509.ClientCAFile}
	a.MinTLSVersion, a.CipherSuites, a.CurvePreferences, _ = o.TLS() // the settings were checked
	switch {
	case o.TLSCertFile != "":
	case o.ServerTLSBootstrap:
		p.serving, err = certificates.NewServer(certificates.ServerConfig{
			Client: p.clients.main, NodeName: o.nodeName, Dir: o.certDir, Logger: p.log,
			Addresses: func() []corev1.NodeAddress { return p.agent.Node().Status.Addresses },
		})
		if err != nil {
			return a, err
		}
		a.GetCertificate = p.serving.GetCertificate
	default:
		if a.CertFile, a.KeyFile, err = certificates.SelfSigned(o.certDir, o.nodeName); err != nil {
			return a, err
		}
	}
	reviewer, err := access.New(access.Config{
		Client: p.clients.main, AllowedTTL: o.Authorization.Webhook.CacheAuthorizedTTL.Duration, DeniedTTL: o.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
	})
	if err != nil {
		return a, err
	}
	if o.Authentication.Webhook.Enabled {
		a.TokenReviewer, a.TokenCacheTTL = reviewer, o.Authentication.Webhook.CacheTTL.Duration
	}
	if !a.Authenticates() {
		return a, errors.New("set authentication.x509.clientCAFile or authentication.webhook.enabled: without both, no client could use the kubelet API")
	}
	a.Anonymous = o.Authentication.Anonymous.Enabled
	if o.Authorization.Mode == kubeletconfig.Webhook {
		a.Authorizer = reviewer
	}
	return a, nil
}

// problems returns the problems of the manifests of static pods.
func (p *program) problems() (all []kubeletapi.Problem) {
	for _, m := range p.manifests {
		for _, problem := range m.Problems() {
			err := problem.Err
			if problem.Document > 0 {
				err = fmt.Errorf("document %d: %w", problem.Document, err)
			}
			all = append(all, kubeletapi.Problem{File: problem.File, Err: err})
		}
	}
	return all
}

// configz returns the configuration in use, in the kubelet's format. Values that may be secret are
// masked or left out.
func (p *program) configz() map[string]any {
	settings := p.opts.Settings
	settings.StaticPodURLHeader = map[string][]string{}
	for name := range p.opts.StaticPodURLHeader {
		settings.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	u, err := url.Parse(settings.StaticPodURL)
	if settings.StaticPodURL = ""; err == nil {
		u.RawQuery = ""
		settings.StaticPodURL = u.Redacted()
	}
	return map[string]any{"kubeletconfig": settings}
}
