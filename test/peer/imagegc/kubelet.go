package imagegc

import (
	"context"
	"fmt"
	"sort"
	"testing"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/kubernetes/pkg/kubelet/util/sliceutils"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A kubelet plays the kubelet's side of worlds. One runtime manager serves all worlds,
// because it keeps no state of a node.
type kubelet struct {
	services *services
	runtime  container.Runtime
}

// services are the runtime of the current world.
type services struct{ *node }

// A runtimeService has the methods that the runtime manager calls in this test.
type runtimeService struct {
	cri.RuntimeService
	*services
}

func (s runtimeService) Version(ctx context.Context, v string) (*runtimeapi.VersionResponse, error) {
	return s.node.Version(ctx, v)
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

// An imageService has the methods that the image manager calls.
type imageService struct {
	cri.ImageManagerService
	*services
}

func (s imageService) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return s.node.ListImages(ctx, f)
}

func (s imageService) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return s.node.RemoveImage(ctx, image)
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	s := &services{newNode(&World{})}
	klog.SetLogger(logr.Discard())
	t.Cleanup(klog.ClearLogger)
	ctx := klog.NewContext(t.Context(), logr.Discard())
	none := func() corev1.ResourceList { return nil }
	k, _, err := kuberuntime.NewKubeGenericRuntimeManager(ctx, &record.FakeRecorder{}, nil, nil, nil, t.TempDir(), t.TempDir(), nil,
		pods{}, 10, container.RealOS{}, nil, nil, nil, false, nil, 0, 0, "NeverVerify", nil, "", "", nil, false, metav1.Duration{},
		runtimeService{services: s}, imageService{services: s}, cm.NewFakeContainerManager(), logs.NewStubContainerLogManager(), nil, false, "", none, 0, "", nil,
		noop.NewTracerProvider(), nil, nil, nil)
	require.NoError(t, err)
	return &kubelet{services: s, runtime: k}
}

// pods has no pods.
type pods struct{}

func (pods) IsPodTerminationRequested(types.UID) bool { return false }
func (pods) ShouldPodContentBeRemoved(types.UID) bool { return false }
func (pods) ShouldPodRuntimeBeRemoved(types.UID) bool { return false }

func (k *kubelet) play(t *testing.T, w *World) []judge.Facts {
	t.Helper()
	require.NoError(t, utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.RuntimeClassInImageCriAPI): w.Gate}))
	return play(t, w, func(t *testing.T, n *node) agent {
		t.Helper()
		k.services.node = n
		return &theirs{t: t, kubelet: k, node: n}
	})
}

// theirs is the kubelet's image manager with the rule of the kubelet's loop about events.
type theirs struct {
	*kubelet
	t        *testing.T
	node     *node
	manager  images.ImageGCManager
	began    time.Time
	measured int // deletion attempts before the measurement of the disk
	failing  bool
}

func (a *theirs) start() error {
	w := a.node.w
	policy := images.ImageGCPolicy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute, MaxAge: w.MaxAge}
	if w.High != nil {
		policy.HighThresholdPercent = *w.High
	}
	if w.Low != nil {
		policy.LowThresholdPercent = *w.Low
	}
	if w.MinAge != nil {
		policy.MinAge = *w.MinAge
	}
	hook := func(_ context.Context, remaining []string, began time.Time) { a.node.hook(remaining, began) }
	var err error
	a.manager, err = images.NewImageGCManager(a.runtime, a, []images.PostImageGCHook{hook}, recorder{a.node}, &corev1.ObjectReference{}, policy, noop.NewTracerProvider())
	a.began, a.failing = time.Now(), false
	return err
}

func (a *theirs) ImageFsStats(context.Context) (*statsapi.FsStats, *statsapi.FsStats, error) {
	a.measured = len(a.node.tries)
	capacity, available, err := a.node.usage()
	if err != nil {
		return nil, nil, err
	}
	stats := &statsapi.FsStats{CapacityBytes: &capacity, AvailableBytes: &available}
	return stats, stats, nil
}

// A passContext is the context of a function that replaces a method and has the receiver as
// its first argument.
type passContext = context.Context

// detectImages is what the kubelet does every five minutes.
//
//go:linkname detectImages k8s.io/kubernetes/pkg/kubelet/images.(*realImageGCManager).detectImages
func detectImages(manager unsafe.Pointer, ctx passContext, at time.Time) (sets.Set[string], error)

func (a *theirs) act(ctx context.Context, what string) (reasons []string, err error) {
	a.measured = 1 << 30
	switch what {
	case "detect":
		_, err = detectImages((*[2]unsafe.Pointer)(unsafe.Pointer(&a.manager))[1], ctx, time.Now())
	case "collect":
		if err = a.manager.GarbageCollect(ctx, a.began); a.node.w.Loop {
			if err != nil && a.failing {
				recorder{a.node}.Eventf(nil, "", "ImageGCFailed", "%s", faults(err))
			}
			a.failing = err != nil
		}
	case "delete unused":
		a.measured = 0
		err = a.manager.DeleteUnusedImages(ctx)
	}
	for i := range a.node.tries {
		if i < a.measured {
			reasons = append(reasons, "age")
		} else {
			reasons = append(reasons, "space")
		}
	}
	return reasons, err
}

// status lists images as the kubelet does every half minute, for its node status.
func (a *theirs) status(ctx context.Context) string {
	list, err := a.runtime.ListImages(ctx)
	require.NoError(a.t, err)
	sort.Sort(sliceutils.ByImageSize(list))
	status := &corev1.Node{}
	set := nodestatus.Images(3, func() ([]container.Image, error) { return list, nil })
	require.NoError(a.t, set(ctx, status))
	return fmt.Sprint(status.Status.Images)
}

func (a *theirs) stop() {}

// recorder records events.
type recorder struct{ *node }

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
