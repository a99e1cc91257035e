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

// Runtime is the part of cri.RuntimeService and cri.ImageManagerService that the agent calls.
// The client of package agent/cri implements it, and so does a fakecri.Node. An optional call
// that the runtime does not support returns the gRPC code Unimplemented, as CRI defines it. To
// change single calls of a runtime, embed it.
type Runtime interface {
	RuntimeInfo
	PodRuntime
	NodeRuntime
}

// RuntimeInfo returns the version and the status of a runtime.
type RuntimeInfo interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// PodRuntime runs and watches pods.
type PodRuntime interface {
	pleg.Runtime
	pleg.EventSource
	podrunner.Sandboxes
	podrunner.Containers
	podrunner.Resizer
	lifecycle.ExecRunner
}

// NodeRuntime measures the node, pulls images, and removes unused images and containers.
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
// Pods of the source named "api" ([podspec.SourceAPI]) behave as pods of an API server: a
// refused pod has failed, and a pod is stopped when it has a deletion timestamp. Pods of any
// other source are static: a refused pod goes through admission again when the node has
// changed, and they are critical unless [Config].StaticPods is [OrdinaryStaticPods]. Do not
// pass mirror pods to set.
//
// A pod needs a UID, a namespace, a name and a container, all with names that are valid in the
// API. An incomplete pod is skipped, and the check "sources" of [Agent.Health] names the
// missing or invalid fields. The agent does not fill in the defaults of the API server; package
// podsource does that for manifests.
type Source struct {
	// Name becomes the value of the annotation kubernetes.io/config.source of each pod. It
	// replaces the pod's own value, so that no pod of an API server can make itself static.
	// Names of sources must differ. Required.
	Name string
	// Run calls set with all pods of the source as soon as it knows them, and again whenever
	// they have changed, until ctx is done. Set compares them with the pods of the previous
	// call, by pointer first, and returns without waiting. It must not be called concurrently.
	// Neither the slice nor the pods may be modified afterwards. If Run returns before ctx is
	// done, [Agent.Run] returns too, with an error that names the source. Required.
	Run func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error
}

// Cluster finds objects that pods refer to outside their node. A pod that needs a nil function
// is refused with a message that names the pod's field.
type Cluster struct {
	// Node returns the API server's node from a cache; admission uses its labels and taints. It
	// may call [Agent.Node]. The default is [Agent.Node], which is also used after an error.
	Node func(context.Context) (*corev1.Node, error)
	// FreshNode gets the node from the API server. It is called if the node lacks the labels
	// that a pod selects, because the scheduler may have seen newer labels. Default: Node.
	FreshNode func(context.Context) (*corev1.Node, error)
	// Objects finds ConfigMaps and Secrets. The agent calls Release when a pod is completely
	// removed. It does not call Release at the end of Run, because the pods keep running: the
	// program stops its own watches. When an object has changed, call [Agent.Sync] for the pods
	// that use it.
	Objects podspec.Objects
	// Tokens requests tokens of service accounts.
	Tokens podspec.TokenFunc
	// Services returns the services of a namespace, for the environment variables of
	// containers.
	Services func(namespace string) ([]*corev1.Service, error)
	// RuntimeHandler returns the handler of a RuntimeClass. Default: each handler of the
	// runtime is a RuntimeClass of the same name.
	RuntimeHandler func(class string) (string, error)
}

// EventRecorder records events; client-go's recorder implements it. The object is a
// *corev1.ObjectReference; for an event of a container its FieldPath is set.
type EventRecorder interface {
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any)
}
