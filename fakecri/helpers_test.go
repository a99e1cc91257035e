package fakecri_test

import (
	"context"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/fakecri"
)

var _ cri.ImageManagerService = (*fakecri.Node)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNode_ImplementsTheRuntimeService compares by reflection, because the interface of v0.37
// has two more methods, with messages that v0.36 does not have.
func TestNode_ImplementsTheRuntimeService(t *testing.T) {
	t.Parallel()
	node, later := reflect.TypeFor[*fakecri.Node](), []string{"CheckpointPod", "RestorePod"}
	for want := range reflect.TypeFor[cri.RuntimeService]().Methods() {
		if slices.Contains(later, want.Name) {
			continue
		}
		got, ok := node.MethodByName(want.Name)
		require.True(t, ok, "%s is missing", want.Name)
		require.Equal(t, want.Type, reflect.ValueOf(&fakecri.Node{}).Method(got.Index).Type(), want.Name)
	}
}

const (
	created  = runtimeapi.ContainerState_CONTAINER_CREATED
	running  = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited   = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown  = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
)

var epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// bed is a node with the demo images on a fake clock.
type bed struct {
	*fakecri.Node
	t     testing.TB
	clock *testingclock.FakeClock
}

func newBed(tb testing.TB, change ...func(*fakecri.Config)) *bed {
	tb.Helper()
	clock := testingclock.NewFakeClock(epoch)
	cfg := fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms(), Clock: clock, Record: true}
	for _, c := range change {
		c(&cfg)
	}
	dropUnused(cfg)
	n, err := fakecri.New(cfg)
	require.NoError(tb, err)
	return &bed{Node: n, t: tb, clock: clock}
}

// dropUnused removes the demo programs from cfg whose images a test does not
// configure.
func dropUnused(cfg fakecri.Config) {
	demo := fakecri.DemoPrograms()
	for _, img := range slices.Concat(cfg.Images, cfg.Registry) {
		for _, name := range append(slices.Clone(img.Tags), img.Name) {
			delete(demo, name)
		}
	}
	for name := range demo {
		delete(cfg.Programs, name)
	}
}

func podConfig(name string, attempt uint32) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name, Attempt: attempt},
		Labels:      map[string]string{"io.kubernetes.pod.name": name, "app": "demo"},
		Annotations: map[string]string{"note": "a sandbox"},
	}
}

func containerConfig(name, image string, attempt uint32) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image:       &runtimeapi.ImageSpec{Image: image},
		Labels:      map[string]string{"io.kubernetes.container.name": name},
		Annotations: map[string]string{"note": "a container"},
	}
}

func (b *bed) pod(name string) string {
	b.t.Helper()
	id, err := b.RunPodSandbox(b.t.Context(), podConfig(name, 0), "")
	require.NoError(b.t, err)
	return id
}

// make creates a container from an image in the pod with the given name.
func (b *bed) make(sandbox, pod, name, image string) string {
	b.t.Helper()
	id, err := b.CreateContainer(b.t.Context(), sandbox, containerConfig(name, image, 0), podConfig(pod, 0))
	require.NoError(b.t, err)
	return id
}

// start creates a pod with one started container.
func (b *bed) start(pod, image string) (sandbox, container string) {
	b.t.Helper()
	sandbox = b.pod(pod)
	container = b.make(sandbox, pod, "app", image)
	require.NoError(b.t, b.StartContainer(b.t.Context(), container))
	return sandbox, container
}

func (b *bed) status(id string) *runtimeapi.ContainerStatus {
	b.t.Helper()
	resp, err := b.ContainerStatus(b.t.Context(), id, false)
	require.NoError(b.t, err)
	return resp.GetStatus()
}

func (b *bed) sandbox(id string) *runtimeapi.PodSandboxStatus {
	b.t.Helper()
	resp, err := b.PodSandboxStatus(b.t.Context(), id, false)
	require.NoError(b.t, err)
	return resp.GetStatus()
}

// requireEnded checks the exit code, the reason and the run time of an exited
// container.
func (b *bed) requireEnded(id string, code int32, reason string, after time.Duration) {
	b.t.Helper()
	st := b.status(id)
	require.Equal(b.t, exited, st.GetState())
	require.Equal(b.t, code, st.GetExitCode())
	require.Equal(b.t, reason, st.GetReason())
	ran := time.Duration(st.GetFinishedAt() - st.GetStartedAt())
	require.Equal(b.t, after, ran.Round(time.Microsecond))
}

func requireCode(tb testing.TB, want codes.Code, err error, contains ...string) {
	tb.Helper()
	require.Equal(tb, want, grpcstatus.Code(err), "error: %v", err)
	for _, text := range contains {
		require.ErrorContains(tb, err, text)
	}
}

// serve serves a node on an in-memory listener until the test ends.
func serve(tb testing.TB, n *fakecri.Node) (runtimeapi.RuntimeServiceClient, runtimeapi.ImageServiceClient) {
	tb.Helper()
	lis := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	go func() { done <- n.Serve(ctx, lis) }()
	conn := dial(tb, "passthrough:///node", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return lis.DialContext(ctx)
	}))
	tb.Cleanup(func() {
		require.NoError(tb, conn.Close())
		cancel()
		require.NoError(tb, <-done)
	})
	return runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
}

func dial(tb testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(target, opts...)
	require.NoError(tb, err)
	return conn
}
