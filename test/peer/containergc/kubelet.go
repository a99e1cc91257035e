package containergc

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A kubelet plays the kubelet's side of worlds. One runtime manager serves all worlds,
// because its garbage collection keeps no state between passes.
type kubelet struct {
	root    string
	current *current
	runtime kubecontainer.Runtime
}

// current is the node of the current world.
type current struct{ *node }

func newKubelet(t *testing.T, root string) *kubelet {
	t.Helper()
	k := &kubelet{root: root, current: &current{&node{}}}
	klog.SetLogger(logr.Discard())
	t.Cleanup(klog.ClearLogger)
	ctx := klog.NewContext(t.Context(), logr.Discard())
	service := runtimeService{current: k.current}
	folder := mapped{root: root}
	rotation, err := logs.NewContainerLogManager(service, folder, "10Mi", 5, 1, metav1.Duration{Duration: time.Hour})
	require.NoError(t, err)
	none := func() corev1.ResourceList { return nil }
	k.runtime, _, err = kuberuntime.NewKubeGenericRuntimeManager(ctx, recorder{k.current}, nil, nil, nil, t.TempDir(), root+"/pods", nil,
		k.current, 10, folder, nil, nil, nil, false, nil, 0, 0, "NeverVerify", nil, "", "", nil, false, metav1.Duration{},
		service, imageService{}, cm.NewFakeContainerManager(), rotation, nil, false, "", none, 0, "", nil,
		noop.NewTracerProvider(), nil, nil, nil)
	require.NoError(t, err)
	return k
}

func (k *kubelet) play(t *testing.T, w *World) []judge.Facts {
	t.Helper()
	return play(t, w, k.root, func(t *testing.T, n *node) agent {
		t.Helper()
		k.current.node = n
		n.shifted = true
		policy := kubecontainer.GCPolicy{MinAge: w.MinAge, MaxPerPodContainer: w.MaxPerPodContainer, MaxContainers: w.MaxContainers}
		gc, err := kubecontainer.NewContainerGC(k.runtime, policy, sources{n})
		require.NoError(t, err)
		return func(ctx context.Context, all bool) error {
			if all {
				return gc.DeleteAllUnusedContainers(ctx)
			}
			err := gc.GarbageCollect(ctx)
			if err != nil { // as the kubelet's loop does
				n.events = append(n.events, "ContainerGCFailed "+faults(err))
			}
			return err
		}
	})
}

// sources reports whether the pod sources are ready.
type sources struct{ *node }

func (s sources) AllReady() bool { return !s.step.NotReady }

// mapped is an operating system in which the directory of links has another path.
type mapped struct {
	kubecontainer.RealOS
	root string
}

const links = "/var/log/containers"

func (m mapped) path(path string) string {
	if below, ok := strings.CutPrefix(path, links); ok {
		return m.root + "/containers" + below
	}
	return path
}

func (m mapped) Stat(path string) (os.FileInfo, error) { return m.RealOS.Stat(m.path(path)) }
func (m mapped) Remove(path string) error              { return m.RealOS.Remove(m.path(path)) }

func (m mapped) Glob(pattern string) ([]string, error) {
	found, err := m.RealOS.Glob(m.path(pattern))
	for i := range found {
		if below, ok := strings.CutPrefix(found[i], m.root+"/containers"); ok {
			found[i] = links + below
		}
	}
	return found, err
}

// A runtimeService has the methods that the runtime manager calls in this test.
type runtimeService struct {
	cri.RuntimeService
	*current
}

func (s runtimeService) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (s runtimeService) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return s.node.ListPodSandbox(ctx, f)
}

func (s runtimeService) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return s.node.ListContainers(ctx, f)
}

func (s runtimeService) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return s.node.ContainerStatus(ctx, id, verbose)
}

func (s runtimeService) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	return s.node.ExecSync(ctx, id, command, timeout)
}

func (s runtimeService) StopContainer(ctx context.Context, id string, grace int64) error {
	return s.node.StopContainer(ctx, id, grace)
}

func (s runtimeService) RemoveContainer(ctx context.Context, id string) error {
	return s.node.RemoveContainer(ctx, id)
}

func (s runtimeService) StopPodSandbox(ctx context.Context, id string) error {
	return s.node.StopPodSandbox(ctx, id)
}

func (s runtimeService) RemovePodSandbox(ctx context.Context, id string) error {
	return s.node.RemovePodSandbox(ctx, id)
}

// imageService is never called.
type imageService struct{ cri.ImageManagerService }

// recorder records events.
type recorder struct{ *current }

func (r recorder) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	r.events = append(r.events, reason+" "+fmt.Sprintf(format, args...))
}

func (r recorder) Event(_ runtime.Object, _, reason, message string) {
	r.events = append(r.events, reason+" "+message)
}

func (r recorder) AnnotatedEventf(_ runtime.Object, _ map[string]string, _, reason, format string, args ...any) {
	r.events = append(r.events, reason+" "+fmt.Sprintf(format, args...))
}

func (r recorder) WithLogger(klog.Logger) record.EventRecorderLogger { return r }
