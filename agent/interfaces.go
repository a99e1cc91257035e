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

// Runtime has the methods of cri.RuntimeService and cri.ImageManagerService that the agent calls.
// The Client of package agent/cri and fakecri.Node implement Runtime. If the runtime does not
// support an optional call, the method for the call returns the gRPC code Unimplemented, as CRI
// defines. To change single methods of a Runtime, embed the Runtime in a struct.
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

// NodeRuntime measures the usage of containers and images, pulls images, and removes unused
// images and containers.
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
// Pods of the source named "api" ([podspec.SourceAPI]) behave as pods of an API server: if
// admission refuses such a pod, its phase becomes Failed, and it never runs. Pods of all other
// sources are static pods: if admission refuses a static pod, the agent tries again when the node
// has changed or another pod has ended. If [Config].StaticPods is [CriticalStaticPods], static pods
// are critical. The agent stops a pod that has a deletion timestamp. A source must not return mirror
// pods.
//
// A pod must have a UID, a namespace, a name and at least one container. The UID and all names must
// be valid in an API server. The agent ignores an invalid pod, and the check "sources" of
// [Agent.Health] names the missing or invalid fields. The agent does not set the default values
// that the API server sets. Package podsource sets them for manifests.
type Source struct {
	// Name is the name of the source. The agent sets the annotation kubernetes.io/config.source
	// of each pod to Name. The agent replaces any other value, so that no pod of an API server can
	// make itself static. Two sources must not have the same Name. Required.
	Name string
	// Run calls set with all pods of the source: first as soon as Run knows the pods, and then
	// after each change of the pods. Run returns when ctx is done. A call of set compares the pods
	// with the pods of the previous call, and never blocks. A pod with the same pointer as in the
	// previous call counts as unchanged. Run must not call set concurrently, and must not modify
	// the slice or the pods after the call. If Run returns before ctx is done, [Agent.Run] returns
	// an error that names the source. Required.
	Run func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error
}

// Cluster finds the API objects that pods need, such as ConfigMaps and Secrets. If a volume needs
// Objects and Objects is nil, or if a volume needs Tokens and Tokens is nil, the agent refuses the
// pod. The message of the refusal names the field of the pod's spec.
type Cluster struct {
	// Node returns the node as it is in the API server, from a cache. Admission uses the labels
	// and taints of this node. Node may call [Agent.Node]. If Node is nil or returns an error,
	// admission uses the result of [Agent.Node].
	Node func(context.Context) (*corev1.Node, error)
	// FreshNode gets the node from the API server. Admission calls FreshNode if the node in the
	// cache does not have the labels that a pod selects. The scheduler may have used newer labels.
	// Default: Node.
	FreshNode func(context.Context) (*corev1.Node, error)
	// Objects finds ConfigMaps and Secrets. The agent calls the method Release when a pod is
	// completely removed. When [Agent.Run] returns, the pods keep running, so the agent does not
	// call Release. Your program must then stop the watches of its Objects itself. When a ConfigMap
	// or Secret has changed, your program must call [Agent.Sync] for the pods that use it. If nil,
	// environment variables that refer to ConfigMaps or Secrets behave as if these objects did not
	// exist.
	Objects podspec.Objects
	// Tokens requests tokens of service accounts.
	Tokens podspec.TokenFunc
	// Services returns the services of a namespace, for the environment variables of
	// containers.
	Services func(namespace string) ([]*corev1.Service, error)
	// RuntimeHandler returns the runtime handler of a RuntimeClass. Default: the handler with
	// the same name as the RuntimeClass.
	RuntimeHandler func(class string) (string, error)
}

// EventRecorder records events. The recorder of client-go implements it. The object of an event
// is a *corev1.ObjectReference. For an event about a container, the FieldPath of the reference
// is set.
type EventRecorder interface {
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any)
}
