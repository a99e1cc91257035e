//go:build linux && hostile

package hostile

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// ownPod creates a pod as the agent does, and returns its sandbox.
func ownPod(t *testing.T, node *fakecri.Node, attempt uint32) string {
	t.Helper()
	id, err := node.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u", Attempt: attempt},
		Labels:   map[string]string{labelAgent: agentName, labelPodUID: "u", labelPodName: "p"},
	}, "")
	require.NoError(t, err)
	return id
}

// watched returns a node with pods of other clients, and its monitor.
func watched(t *testing.T) *monitor {
	t.Helper()
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages()})
	require.NoError(t, err)
	others, err := foreignPods(t.Context(), node)
	require.NoError(t, err)
	m := &monitor{node: node, others: others}
	v, err := m.snapshot(t.Context())
	require.NoError(t, err)
	m.before = v.foreign
	return m
}

func TestMonitor_SeesWhatExistsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := watched(t)
		require.Empty(t, m.check(t.Context()))
		ownPod(t, m.node, 0)
		require.Empty(t, m.check(t.Context()))
		ownPod(t, m.node, 1)
		require.Equal(t, []string{"pod UID u has 2 ready sandboxes"}, m.check(t.Context()))
		m.setLax(true)
		require.Empty(t, m.check(t.Context()))
	})
}

func TestMonitor_SeesThatForeignPodsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := watched(t)
		m.setLax(true)
		for id := range m.others {
			require.NoError(t, m.node.RemovePodSandbox(t.Context(), id))
			require.NoError(t, m.node.RemoveContainer(t.Context(), id))
			break
		}
		require.Len(t, m.check(t.Context()), 1)
	})
}

// proxied returns a proxy before a monitored node, and a client of it.
func proxied(t *testing.T) (*proxy, *monitor, runtimeapi.RuntimeServiceClient) {
	t.Helper()
	m, dir := watched(t), t.TempDir()
	p, err := newProxy(filepath.Join(dir, "below"), 1, m.others)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 2)
	for name, serve := range map[string]func(context.Context, net.Listener) error{"below": m.node.Serve, "above": p.run} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		require.NoError(t, err)
		go func() { served <- serve(ctx, l) }()
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "above"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		stop()
		require.NoError(t, errors.Join(<-served, <-served))
	})
	return p, m, runtimeapi.NewRuntimeServiceClient(conn)
}

func TestProxy_FailsAfterAndBefore(t *testing.T) {
	p, m, client := proxied(t)
	request := func(attempt uint32) *runtimeapi.RunPodSandboxRequest {
		return &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u", Attempt: attempt}, Labels: map[string]string{labelAgent: agentName},
		}}
	}
	ours := func() int {
		v, err := m.snapshot(t.Context())
		require.NoError(t, err)
		return len(v.ours)
	}
	p.begin(attack{fail: 1})
	_, err := client.RunPodSandbox(t.Context(), request(0))
	require.Equal(t, codes.Canceled, grpcstatus.Code(err))
	require.Equal(t, 1, ours())
	_, err = client.RunPodSandbox(t.Context(), request(1))
	require.Equal(t, codes.Canceled, grpcstatus.Code(err))
	require.Equal(t, 1, ours())
	p.begin(attack{})
	_, err = client.RunPodSandbox(t.Context(), request(1))
	require.NoError(t, err)
	require.Equal(t, 2, ours())
}

func TestProxy_HangsUntilTheAttackIsOver(t *testing.T) {
	p, _, client := proxied(t)
	p.begin(attack{hang: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	require.Equal(t, codes.DeadlineExceeded, grpcstatus.Code(err))
	answered := make(chan error, 1)
	go func() {
		_, err := client.Version(t.Context(), &runtimeapi.VersionRequest{})
		answered <- err
	}()
	for hung := 0; hung < 2; runtime.Gosched() {
		p.mu.Lock()
		hung = p.tried.hung
		p.mu.Unlock()
	}
	p.begin(attack{})
	require.NoError(t, <-answered)
}

func TestProxy_SeesCallsAboutForeignPods(t *testing.T) {
	p, m, client := proxied(t)
	p.begin(attack{foreign: true})
	all, err := client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelAgent: agentName}},
	})
	require.NoError(t, err)
	require.Len(t, all.GetItems(), 24) // 4 that exist, which the filter would have left out
	require.Empty(t, p.trespasses())
	for id := range m.others {
		_, err := client.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		require.Empty(t, p.trespasses(), err)
		_, err = client.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id})
		require.NoError(t, err)
		require.Equal(t, []string{"StopContainer " + id}, p.trespasses())
		break
	}
}

func TestLie_ChangesEveryKindOfField(t *testing.T) {
	m := watched(t)
	boxes, err := m.node.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	answer := &runtimeapi.ListPodSandboxResponse{Items: boxes}
	rng := rand.New(rand.NewPCG(1, 1))
	changed, longest := 0, 0
	for range 500 {
		one := proto.CloneOf(answer)
		lie(rng, one.ProtoReflect())
		if _, err := proto.Marshal(one); err != nil {
			require.NoError(t, err)
		}
		if !proto.Equal(answer, one) {
			changed++
		}
		longest = max(longest, len(one.GetItems()))
		for _, b := range one.GetItems() {
			require.NotEqual(t, agentName, b.GetLabels()[labelAgent])
		}
	}
	require.Greater(t, changed, 450)
	require.Greater(t, longest, manyEntries)
}

func TestWaits_CountTheTimeWithoutAProcessor(t *testing.T) {
	var crowd []*exec.Cmd
	for range 2 * runtime.NumCPU() {
		busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		require.NoError(t, busy.Start())
		t.Cleanup(func() { _ = busy.Wait() }) // killed when the test's context ends
		crowd = append(crowd, busy)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for waited := time.Duration(0); waited < 200*time.Millisecond; <-tick.C { // or the test times out
		for _, busy := range crowd {
			waited = max(waited, longestWait(nil, waits(busy.Process.Pid)))
		}
	}
	require.Equal(t, 3*time.Second, longestWait(map[int]time.Duration{1: 5 * time.Second}, map[int]time.Duration{1: 8 * time.Second, 2: time.Second}))
}

// TestRevive_KnowsTheMessageOfARefusedStart fails when the agent changes the message that
// revive looks for. Few runs of the attacks contain a refused start.
func TestRevive_KnowsTheMessageOfARefusedStart(t *testing.T) {
	binary, err := buildAgent(t.TempDir())
	require.NoError(t, err)
	r := &run{binary: binary, dir: t.TempDir()}
	r.addr, err = freeAddress()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(r.path("config.yaml"), []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"), 0o600))
	require.NoError(t, os.Mkdir(r.path("manifests"), 0o755))
	require.NoError(t, r.start()) // nothing listens on cri.sock
	require.True(t, r.agent.ended(time.Minute))
	require.NoError(t, r.revive())
	defer r.agent.kill()
	require.Empty(t, r.found, "the agent's output:\n%s", r.out.lines(10))
	require.Equal(t, 1, r.refused)
}
