package cri_test

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	criclient "github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/pleg"
)

// runtime has all methods that the managers, the kubelet's HTTP API and an agent's health check
// call. fakecri.Node shows that their signatures are those of k8s.io/cri-api.
type runtime interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
	CheckpointContainer(ctx context.Context, request *runtimeapi.CheckpointContainerRequest) error
	pleg.Runtime
	pleg.EventSource
	podrunner.Sandboxes
	podrunner.Containers
	podrunner.Resizer
	lifecycle.ExecRunner
	logrotate.Runtime
	containergc.Runtime
	containergc.Remover
	stats.Runtime
	stats.ImageService
	images.ImageService
	imagegc.ImageService
	imagegc.Runtime
}

var (
	_ runtime = (*criclient.Client)(nil)
	_ runtime = (*fakecri.Node)(nil)
)
