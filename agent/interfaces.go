package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/pleg"
)

// Runtime is what the agent calls of cri.RuntimeService and cri.ImageManagerService. The
// client of package agent/cri implements it, and so does a fakecri.Node. A runtime that does
// not have an optional call returns the gRPC code Unimplemented, as CRI defines it. To
// change some calls of a runtime, embed it.
type Runtime interface {
	RuntimeInfo
	PodRuntime
	NodeRuntime
}

// RuntimeInfo is what describes a runtime.
type RuntimeInfo interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// PodRuntime is what runs and watches pods.
type PodRuntime interface {
	pleg.Runtime
	pleg.EventSource
	podrunner.Sandboxes
	podrunner.Containers
	podrunner.Resizer
	lifecycle.ExecRunner
}

// NodeRuntime is what measures the node, pulls images and removes what is not needed.
type NodeRuntime interface {
	stats.Runtime
	stats.ImageService
	images.ImageService
	imagegc.ImageService
	containergc.Runtime
	containergc.Remover
	logrotate.Runtime
}

// Source defines pods.
//
// Pods of the source named "api" ([podspec.SourceAPI]) are as an API server has them: a
// refused pod has failed, and a pod ends when it has a deletion timestamp. Pods of any other
// source are static: a refused pod is asked about again when the node has changed, and they
// are critical unless [Config].StaticPods is [OrdinaryStaticPods]. Mirror pods are not given
// to set.
//
// A pod needs a UID, a namespace, a name and a container, all with names that are valid in the
// API. A pod without them is left out: the check "sources" of [Agent.Health] names its fields.
// Fields that the API server sets by default are not filled in; package podsource does that
// for manifests.
type Source struct {
	// Name becomes the value of the annotation kubernetes.io/config.source of each pod,
	// whatever the pod has there, so that no pod of an API server can make itself static.
	// Two sources have different names. Required.
	Name string
	// Run calls set with all pods of the source: first when it knows them, and then whenever
	// they have changed, until ctx is done. Set compares them with those of the previous
	// call, by pointer first, and returns without waiting. It may be called by one goroutine
	// at a time. Neither the slice nor the pods may be modified afterwards. If Run returns
	// before ctx is done, so does [Agent.Run], with an error that names the source.
	// Required.
	Run func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error
}

// Cluster finds what pods refer to beyond their node. A pod that needs a function that is nil
// is refused, and the message names the pod's field.
type Cluster struct {
	// Node returns the node as the API server has it, from a cache: its labels and taints
	// decide about admission. It may call [Agent.Node]. Default, and after an error:
	// [Agent.Node].
	Node func(context.Context) (*corev1.Node, error)
	// FreshNode asks the API server for the node. It is called if the node does not have the
	// labels that a pod selects, because the scheduler may have seen newer ones. Default:
	// Node.
	FreshNode func(context.Context) (*corev1.Node, error)
	// Objects finds ConfigMaps and Secrets. The agent calls Release when nothing of a pod is
	// left, and not at the end of Run: pods outlive it, and watches are the program's to
	// stop. After a change of an object call [Agent.Sync] for the pods that use it.
	Objects podspec.Objects
	// Tokens requests tokens of service accounts.
	Tokens podspec.TokenFunc
	// Services returns the services of a namespace, for the variables of containers.
	Services func(namespace string) ([]*corev1.Service, error)
	// RuntimeHandler returns the handler of a RuntimeClass. Default: each handler of the
	// runtime is a class of its own name.
	RuntimeHandler func(class string) (string, error)
}

// EventRecorder records events; client-go's recorder implements it. The object is a
// *corev1.ObjectReference, of a container with its field path.
type EventRecorder interface {
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any)
}
