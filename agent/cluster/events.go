package cluster

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// component is the component in the source of events. Clients select the events of a node by this
// name, so it is the name that the kubelet uses.
const component = "kubelet"

// events passes events to client-go's recorder, which merges similar events and limits the rate
// for each object. Until run is called, AnnotatedEventf stores the events. run then sends them.
type events struct {
	client   kubernetes.Interface
	nodeName string

	mu   sync.Mutex
	to   record.EventRecorder // nil before run
	held []func(record.EventRecorder)
}

// run sends events until ctx is done. Events that were not sent by then are lost.
func (e *events) run(ctx context.Context) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: e.client.CoreV1().Events(corev1.NamespaceAll)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: e.nodeName}).
		WithLogger(logr.FromContextOrDiscard(ctx))
	e.mu.Lock()
	for _, send := range e.held {
		send(recorder)
	}
	e.held, e.to = nil, recorder
	e.mu.Unlock()
	<-ctx.Done()
}

// AnnotatedEventf implements agent.EventRecorder.
func (e *events) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	send := func(to record.EventRecorder) {
		to.AnnotatedEventf(object, annotations, eventtype, reason, messageFmt, args...)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.to == nil {
		e.held = append(e.held, send)
		return
	}
	send(e.to)
}
