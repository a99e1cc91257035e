package metrics

import (
	"context"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type callMetrics struct {
	calls, errors   *prometheus.CounterVec
	took            *prometheus.HistogramVec
	sandboxTook     *prometheus.HistogramVec
	sandboxFailures *prometheus.CounterVec
}

func newCalls(f *maker) callMetrics {
	return callMetrics{
		calls:           f.counters("runtime_operations_total", "Calls to the runtime, by operation.", "operation_type"),
		errors:          f.counters("runtime_operations_errors_total", "Calls to the runtime that failed, by operation.", "operation_type"),
		took:            f.histograms("runtime_operations_duration_seconds", "Duration of calls to the runtime, by operation.", prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type"),
		sandboxTook:     f.histograms("run_podsandbox_duration_seconds", "Duration of the creation of a sandbox, by runtime handler.", prometheus.DefBuckets, "runtime_handler"),
		sandboxFailures: f.counters("run_podsandbox_errors_total", "Sandboxes that could not be created, by runtime handler.", "runtime_handler"),
	}
}

// operation has the series of one gRPC method.
type operation struct {
	calls, errors prometheus.Counter
	took          prometheus.Observer
}

// CallObserver returns a gRPC interceptor that counts and times calls. Install it on the
// connection to the runtime.
func (m *Metrics) CallObserver() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := m.cfg.Clock.Now()
		err := invoker(ctx, method, req, reply, cc, opts...)
		took := m.cfg.Clock.Since(began)
		m.called(method, took, err)
		if sandbox, ok := req.(*runtimeapi.RunPodSandboxRequest); ok {
			m.ranSandbox(sandbox.GetRuntimeHandler(), took, err)
		}
		return err
	}
}

func (m *Metrics) called(method string, took time.Duration, err error) {
	op := m.operation(method)
	op.calls.Inc()
	op.took.Observe(took.Seconds())
	if err != nil {
		op.errors.Inc()
	}
}

func (m *Metrics) operation(method string) *operation {
	m.mu.Lock()
	defer m.mu.Unlock()
	op := m.ops[method]
	if op == nil {
		name := operationName(method)
		op = &operation{
			calls: m.calls.calls.WithLabelValues(name), errors: m.calls.errors.WithLabelValues(name), took: m.calls.took.WithLabelValues(name),
		}
		m.ops[method] = op
	}
	return op
}

func (m *Metrics) ranSandbox(handler string, took time.Duration, err error) {
	handler = safe(handler)
	m.calls.sandboxTook.WithLabelValues(handler).Observe(took.Seconds())
	if err != nil {
		m.calls.sandboxFailures.WithLabelValues(handler).Inc()
	}
}

// operationName returns the kubelet's name for a CRI method, such as create_container for
// /runtime.v1.RuntimeService/CreateContainer.
func operationName(method string) string {
	name := path.Base(method)
	if name == "UpdateContainerResources" {
		return "update_container"
	}
	var b strings.Builder
	for i, r := range strings.ReplaceAll(name, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
