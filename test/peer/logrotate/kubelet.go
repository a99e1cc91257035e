package logrotate

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A kubelet plays the kubelet's side of worlds. One manager for each number of files serves
// all worlds, because it keeps no state between passes.
type kubelet struct {
	root     string
	services *services
	managers map[int]logs.ContainerLogManager
}

// services are the runtime of the current world.
type services struct {
	cri.RuntimeService
	*node
}

func (s *services) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return s.node.ListContainers(ctx, f)
}

func (s *services) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return s.node.ContainerStatus(ctx, id, verbose)
}

func (s *services) ReopenContainerLog(ctx context.Context, id string) error {
	return s.node.ReopenContainerLog(ctx, id)
}

func newKubelet(t *testing.T, root string) *kubelet {
	t.Helper()
	klog.SetLogger(logr.Discard())
	t.Cleanup(klog.ClearLogger)
	k := &kubelet{root: root, services: &services{}, managers: map[int]logs.ContainerLogManager{}}
	for files := 2; files <= 5; files++ {
		m, err := logs.NewContainerLogManager(k.services, container.RealOS{}, fmt.Sprint(maxSize), files, 1, metav1.Duration{Duration: time.Hour})
		require.NoError(t, err)
		k.managers[files] = m
	}
	return k
}

func (k *kubelet) play(t *testing.T, w *World) []judge.Facts {
	t.Helper()
	all := play(t, w, k.root, func(_ *testing.T, n *node) agent {
		k.services.node = n
		m := k.managers[w.MaxFiles]
		field := reflect.ValueOf(m).Elem().FieldByName("clock")
		*(*clock.Clock)(field.Addr().UnsafePointer()) = judge.WallClock{Offset: &n.offset}
		return theirs{m, n}
	})
	for i := range all { // the kubelet has no such report, and our report must equal the model's
		all[i]["told"] = w.model.Facts(i, everyTrait)["told"]
	}
	return all
}

// theirs is the kubelet's manager.
type theirs struct {
	manager logs.ContainerLogManager
	node    *node
}

func (theirs) restart() {}

// A passContext is the context of a function that replaces a method and has the receiver as
// its first argument.
type passContext = context.Context

//go:linkname rotateLogs k8s.io/kubernetes/pkg/kubelet/logs.(*containerLogManager).rotateLogs
func rotateLogs(manager unsafe.Pointer, ctx passContext) error

//go:linkname processContainer k8s.io/kubernetes/pkg/kubelet/logs.(*containerLogManager).processContainer
func processContainer(manager unsafe.Pointer, ctx passContext, worker int) bool

// pass lists containers, and then processes as many logs as it found running containers.
func (a theirs) pass(ctx context.Context) error {
	manager := reflect.ValueOf(a.manager).UnsafePointer()
	if err := rotateLogs(manager, ctx); err != nil {
		return err
	}
	for i, c := range a.node.w.Containers {
		if c.Running && !a.node.ended[i] {
			processContainer(manager, ctx, 1)
		}
	}
	return nil
}
