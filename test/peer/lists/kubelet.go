package lists

import (
	"context"
	"fmt"
	"go/ast"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	restful "github.com/emicklei/go-restful/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/server"
	servermetrics "k8s.io/kubernetes/pkg/kubelet/server/metrics"
	volumemetrics "k8s.io/kubernetes/pkg/kubelet/volumemanager/metrics"
)

// host is a kubelet without methods. NewServer does not call them.
type host struct{ server.HostInterface }

// paths returns the methods and paths of the kubelet's server with all its handlers.
func paths() (all []string) {
	s := server.NewServer(context.Background(), host{}, nil, nil, nil, nil, &kubeletconfig.KubeletConfiguration{
		EnableServer: true, EnableDebuggingHandlers: true, EnableSystemLogHandler: true, EnableSystemLogQuery: true,
		EnableProfilingHandler: true, EnableContentionProfiling: true, EnableDebugFlagsHandler: true,
	})
	field := reflect.ValueOf(&s).Elem().FieldByName("restfulCont")
	container := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(interface {
		RegisteredWebServices() []*restful.WebService
		RegisteredHandlePaths() []string
	})
	for _, service := range container.RegisteredWebServices() {
		for _, route := range service.Routes() {
			all = append(all, route.Method+" "+route.Path)
		}
	}
	for _, path := range container.RegisteredHandlePaths() {
		all = append(all, "ANY "+path)
	}
	return all
}

// metricsOf returns the kubelet's metrics: name, type and labels.
func metricsOf() (all []string) {
	kubeletmetrics.Register()
	servermetrics.Register()
	volumemetrics.Register(nil, nil, nil)
	kube := reflect.ValueOf(legacyregistry.DefaultGatherer).Elem().FieldByName("PromRegistry").Interface()
	field := reflect.ValueOf(kube).Elem().FieldByName("collectorsByID")
	byID := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(map[uint64]prometheus.Collector)
	for _, collector := range byID {
		all = append(all, describe(collector.Describe, kindOf(collector))...)
	}
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(prober.ProberResults, prober.ProberDuration)
	all = append(all, describe(prober.ProberResults.Describe, "gauge")...)
	all = append(all, describe(prober.ProberDuration.Describe, "histogram")...)
	for _, c := range []metrics.StableCollector{collectors.NewResourceMetricsCollector(nil), collectors.NewLogMetricsCollector(nil), collectors.NewVolumeStatsCollector(nil)} {
		registry.CustomMustRegister(c)
		all = append(all, describe(c.Describe, "custom")...)
	}
	return slices.DeleteFunc(all, isLibrarys)
}

// isLibrarys reports whether a metric belongs to a library of the kubelet: the API server's,
// the clients' or Go's.
func isLibrarys(metric string) bool {
	return slices.ContainsFunc([]string{
		"aggregator_", "apiserver_", "authenticat", "authorization_", "cardinality_", "disabled_metrics_", "go_", "grpc_client_", "hidden_metrics_",
		"konnectivity_", "kubernetes_feature_", "process_", "registered_metrics_", "rest_client_", "version_info", "workqueue_",
	}, func(prefix string) bool { return strings.HasPrefix(metric, prefix) })
}

func kindOf(c prometheus.Collector) string {
	name := strings.ToLower(fmt.Sprintf("%T", c))
	for _, kind := range []string{"counter", "gauge", "histogram", "summary"} {
		if strings.Contains(name, kind) {
			return kind
		}
	}
	return "custom"
}

// describe returns the metrics of a collector.
func describe(descriptions func(chan<- *prometheus.Desc), kind string) (all []string) {
	ch := make(chan *prometheus.Desc, 1000)
	descriptions(ch)
	close(ch)
	for d := range ch {
		text := d.String()
		name, _, _ := strings.Cut(strings.SplitAfterN(text, `fqName: "`, 2)[1], `"`)
		labels, _, _ := strings.Cut(strings.SplitAfterN(text, "variableLabels: ", 2)[1], "}")
		list := strings.Split(strings.NewReplacer("[", "", "]", "", "{", "", " ", ",").Replace(labels), ",")
		slices.Sort(list)
		all = append(all, fmt.Sprintf("%s %s {%s}", name, kind, strings.Trim(strings.Join(list, ","), ",")))
	}
	return all
}

// reasons returns the reasons of the kubelet's events.
func reasons(t *testing.T, root string) (all []string) {
	t.Helper()
	files := parse(t, filepath.Join(root, "pkg", "kubelet"))
	known := constants(files)
	for name, value := range known {
		if strings.HasPrefix(name, "events.") {
			all = append(all, value)
		}
	}
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 4 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Event" && method.Sel.Name != "Eventf" && method.Sel.Name != "recordContainerEvent" {
				return true
			}
			switch reason := call.Args[2].(type) {
			case *ast.BasicLit:
				if s, ok := stringOf(reason); ok {
					all = append(all, s)
				}
			case *ast.Ident:
				if s := known[f.file.Name.Name+"."+reason.Name]; s != "" {
					all = append(all, s)
				}
			case *ast.SelectorExpr:
				if pkg, ok := reason.X.(*ast.Ident); ok && known[pkg.Name+"."+reason.Sel.Name] != "" {
					all = append(all, known[pkg.Name+"."+reason.Sel.Name])
				}
			}
			return true
		})
	}
	return slices.DeleteFunc(all, func(s string) bool { return strings.ContainsAny(s, " :%") || s == "" })
}

// flags returns the kubelet's own flags, without those of libraries.
func flags(t *testing.T) (all []string) {
	t.Helper()
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	options.NewKubeletFlags().AddFlags(set)
	config, err := options.NewKubeletConfiguration()
	require.NoError(t, err)
	options.AddKubeletConfigFlags(set, config)
	set.VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name) })
	return all
}

// configFields returns the fields of a KubeletConfiguration.
func configFields() (all []string) {
	for f := range reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// gates returns the feature gates that the kubelet reads, with stage and default.
func gates(t *testing.T, root string) (all []string) {
	t.Helper()
	known := constants(parse(t, filepath.Join(root, "pkg", "features")))
	specs := utilfeature.DefaultMutableFeatureGate.GetAll()
	for _, dir := range []string{filepath.Join("pkg", "kubelet"), filepath.Join("cmd", "kubelet")} {
		for _, f := range parse(t, filepath.Join(root, dir)) {
			ast.Inspect(f.file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := sel.X.(*ast.Ident)
				if !ok || pkg.Name != "features" && pkg.Name != "kubefeatures" {
					return true
				}
				name := known["features."+sel.Sel.Name]
				if name == "" {
					name = sel.Sel.Name
				}
				if spec, ok := specs[featuregate.Feature(name)]; ok {
					stage := string(spec.PreRelease)
					if stage == "" {
						stage = "GA"
					}
					all = append(all, fmt.Sprintf("%s %s default=%t", name, stage, spec.Default))
				}
				return true
			})
		}
	}
	return all
}
