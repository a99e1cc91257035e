package termination

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/stretchr/testify/require"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientrecord "k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A kubelet is the kubelet's runtime manager over a runtime that each scenario replaces.
type kubelet struct {
	ctx     context.Context
	manager kuberuntime.KubeGenericRuntime
	runtime *runtimeService
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	dir := t.TempDir()
	k := &kubelet{ctx: klog.NewContext(context.WithoutCancel(t.Context()), logr.Discard()), runtime: &runtimeService{}}
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(
		k.ctx, &clientrecord.FakeRecorder{}, nil, nil, nil, dir, dir, &cadvisorapi.MachineInfo{MemoryCapacity: 32 << 30},
		podStates{}, 110, kubecontainer.RealOS{}, nil, nil, flowcontrol.NewBackOff(time.Second, time.Minute), false, nil, 0, 0,
		string(kubeletconfig.NeverVerify), nil, "", "", nil, true, metav1.Duration{Duration: 100 * time.Millisecond},
		k.runtime, imageService{}, cm.NewFakeContainerManager(), logs.NewStubContainerLogManager(), nil, false, "",
		func() corev1.ResourceList { return nil }, 0.9, kubeletconfig.NoneMemoryReservationPolicy, nil, nooptrace.NewTracerProvider(), nil, nil, nil)
	require.NoError(t, err)
	k.manager = manager
	return k
}

func (k *kubelet) play(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	w.kubelet = k
	synctest.Test(t, func(*testing.T) {
		n, stop := newNode(w)
		k.runtime.node = n
		pod := kubecontainer.Pod{ID: w.Pod.UID, Name: w.Pod.Name, Namespace: w.Pod.Namespace}
		for _, c := range w.Containers {
			if c.Running {
				pod.Containers = append(pod.Containers, &kubecontainer.Container{ID: kubecontainer.ContainerID{Type: "fake", ID: c.Name}, Name: c.Name, State: kubecontainer.ContainerStateRunning})
			}
		}
		ctx, cancel := context.WithCancel(k.ctx)
		n.over(k.manager.KillPod(ctx, w.Pod, pod, new(w.Grace*int64(w.scale))))
		cancel() // stops hooks that are still running
		synctest.Wait()
		stop()
		all = []judge.Facts{n.facts}
	})
	return all
}

// runtimeService is the runtime of the kubelet's side. The name of a container is its id.
type runtimeService struct {
	cri.RuntimeService
	node *node
}

func (r *runtimeService) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (r *runtimeService) ExecSync(ctx context.Context, id string, _ []string, _ time.Duration) ([]byte, []byte, error) {
	return nil, nil, r.node.hook(ctx, id)
}

func (r *runtimeService) StopContainer(ctx context.Context, id string, seconds int64) error {
	grace := time.Duration(seconds) * time.Second
	if r.node.w.scale > 1 {
		grace = r.node.left()
	}
	return r.node.stop(ctx, id, grace)
}

type imageService struct{ cri.ImageManagerService }

type podStates struct{}

func (podStates) IsPodTerminationRequested(types.UID) bool { return false }
func (podStates) ShouldPodContentBeRemoved(types.UID) bool { return false }
func (podStates) ShouldPodRuntimeBeRemoved(types.UID) bool { return false }

// over records when everything has ended, and whether a container could not be stopped.
func (n *node) over(err error) {
	if err != nil || n.w.quiet && n.failed {
		n.fact("over", ", failed")
		return
	}
	n.fact("over", "")
}
