package main

import (
	"path/filepath"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// serveDebugging adds the endpoints for work that otherwise needs the rights of root on the node:
// checkpoints of containers, the log level, and the node's logs.
func (p *program) serveDebugging(cfg *kubeletapi.Config) {
	cfg.Checkpoints, cfg.CheckpointDir = p.machine.Runtime, filepath.Join(p.machine.RootDir, "checkpoints")
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

// flags returns the values of the flags. Values that may be secret are masked or left out.
func (p *program) flags() map[string]string {
	values := p.opts.FlagValues()
	values["manifest-url"] = withoutSecrets(values["manifest-url"])
	return values
}
