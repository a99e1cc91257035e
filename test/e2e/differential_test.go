//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// scripts returns the commands of the containers on containerd, and the fake's programs that
// replace them.
func scripts() map[string]struct {
	command []string
	program fakecri.Program
} {
	sh := func(text string) []string { return []string{"/bin/sh", "-c", text} }
	const wait = `; echo ready; while :; do sleep 0.05 & wait $!; done`
	log := []string{"ready"}
	return map[string]struct {
		command []string
		program fakecri.Program
	}{
		"demo/web:1":      {sh(`trap 'exit 7' TERM` + wait), fakecri.Program{TermExitCode: new(int32(7)), Log: log}},
		"demo/stubborn:1": {sh(`trap '' TERM` + wait), fakecri.Program{IgnoreTerm: true, Log: log}},
		"demo/job:1":      {sh(`echo ready`), fakecri.Program{Runtime: time.Millisecond, Log: log}},
		"demo/crash:1":    {sh(`echo ready; exit 3`), fakecri.Program{Runtime: time.Millisecond, ExitCode: 3, Log: log}},
		"demo/broken:1":   {[]string{"/missing"}, fakecri.Program{StartError: "no such file"}},
		"demo/none:1":     {nil, fakecri.Program{}}, // not an image
	}
}

// side is one of two runtimes that receive the same calls. The test refers to objects by
// name, because their IDs differ.
type side struct {
	t       *testing.T
	rt      runtimeapi.RuntimeServiceClient
	real    bool
	logs    string
	tag     string
	ids     map[string]string // ID of the newest object with a name
	names   map[string]string // kind and name of the object with an ID
	configs map[string]*runtimeapi.PodSandboxConfig

	mu     sync.Mutex
	events map[string][]string // events by ID
}

func newSide(t *testing.T, conn grpc.ClientConnInterface, real bool, tag string) *side {
	t.Helper()
	s := &side{
		t: t, rt: runtimeapi.NewRuntimeServiceClient(conn), real: real, logs: t.TempDir(), tag: tag,
		ids: map[string]string{}, names: map[string]string{}, configs: map[string]*runtimeapi.PodSandboxConfig{},
		events: map[string][]string{},
	}
	s.watch()
	return s
}

// watch records events until the test ends. It creates a pod, and returns when the pod's
// events arrive.
func (s *side) watch() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := s.rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	require.NoError(s.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := stream.Recv(); err == nil; e, err = stream.Recv() {
			s.mu.Lock()
			s.events[e.GetContainerId()] = append(s.events[e.GetContainerId()], e.GetContainerEventType().String())
			s.mu.Unlock()
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
	waitFor(s.t, callTimeout, "an event", func() (string, bool) {
		require.NoError(s.t, s.runPod("watch", 0))
		id := s.ids["watch#0"]
		_, err := s.rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		require.NoError(s.t, err)
		seen, ok := poll(time.Second, func() (string, bool) { return "nothing", len(s.told(id)) > 0 })
		return seen, ok
	})
	clear(s.names)
}

func (s *side) told(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events[id])
}

// made records a new object.
func (s *side) made(name, id string) {
	s.ids[name], s.names[id] = id, fmt.Sprint(name, " of object ", len(s.names))
}

// stories removes all objects, waits for the events of the removals, and returns the events
// of each object.
func (s *side) stories() map[string][]string {
	s.t.Helper()
	for key := range s.configs {
		_, err := s.rt.RemovePodSandbox(s.t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.id(key)})
		require.NoError(s.t, err)
	}
	all := map[string][]string{}
	waitFor(s.t, callTimeout, "the end of all events", func() (string, bool) {
		for id, name := range s.names {
			all[name] = s.told(id)
			if !slices.Contains(all[name], runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT.String()) {
				return fmt.Sprint(name, all[name]), false
			}
		}
		return "", true
	})
	return all
}

// serveFake serves a fake with the same programs until the test ends.
func serveFake(t *testing.T) *grpc.ClientConn {
	t.Helper()
	cfg := fakecri.Config{WriteLogs: true, Programs: map[string]fakecri.Program{}}
	for name, s := range scripts() {
		if s.command != nil {
			s.program.Exec = map[string]fakecri.Exec{"/bin/true": {}, "/bin/false": {ExitCode: 1}}
			cfg.Programs[name] = s.program
			cfg.Images = append(cfg.Images, fakecri.Image{Name: name})
		}
	}
	n, err := fakecri.New(cfg)
	require.NoError(t, err)
	lis, done := bufconn.Listen(1<<20), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- n.Serve(ctx, lis) }()
	conn, err := grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-done)
	})
	return conn
}

func (s *side) labels() map[string]string { return map[string]string{"differential": s.tag} }

// id returns the ID of a name, or an ID that does not exist.
func (s *side) id(name string) string {
	if id := s.ids[name]; id != "" {
		return id
	}
	return fmt.Sprintf("%064x", len(name))
}

func (s *side) runPod(name string, attempt uint32) error {
	key := fmt.Sprint(name, "#", attempt)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "differential", Uid: s.tag, Attempt: attempt},
		Labels:   s.labels(), LogDirectory: filepath.Join(s.logs, name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kpbed/differential"},
	}
	require.NoError(s.t, os.MkdirAll(config.GetLogDirectory(), 0o755))
	r, err := s.rt.RunPodSandbox(s.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err == nil {
		s.made(key, r.GetPodSandboxId())
		s.configs[key] = config
	}
	return err
}

func (s *side) create(pod, name, image string, attempt uint32) error {
	spec := &runtimeapi.ImageSpec{Image: image}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, Image: spec, Labels: s.labels(),
		LogPath: fmt.Sprintf("%s_%d.log", name, attempt), Linux: &runtimeapi.LinuxContainerConfig{},
	}
	if command := scripts()[image].command; s.real && command != nil {
		config.Image, config.Command = &runtimeapi.ImageSpec{Image: "kubeparts.test/busybox:1"}, command
	}
	sandbox := s.configs[pod]
	if sandbox == nil {
		sandbox = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "x", Uid: s.tag}}
	}
	r, err := s.rt.CreateContainer(s.t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.id(pod), Config: config, SandboxConfig: sandbox,
	})
	if err == nil {
		s.made(fmt.Sprint(pod, "/", name, "#", attempt), r.GetContainerId())
	}
	return err
}

// start starts a container and waits until its program is ready or has exited.
func (s *side) start(name string) error {
	_, err := s.rt.StartContainer(s.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: s.id(name)})
	if err != nil {
		return err
	}
	waitFor(s.t, callTimeout, name+" to be ready", func() (string, bool) {
		r, err := s.rt.ContainerStatus(s.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: s.id(name)})
		require.NoError(s.t, err)
		st := r.GetStatus()
		log, _ := os.ReadFile(st.GetLogPath()) // it may not exist yet
		ends := s.ends(st)
		return string(log), len(log) > 0 && (!ends || st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED)
	})
	return nil
}

// ends reports whether a container's program exits by itself, according to its name.
func (s *side) ends(st *runtimeapi.ContainerStatus) bool {
	return slices.Contains([]string{"job", "crash"}, st.GetMetadata().GetName())
}

// seen returns everything that must be equal on both sides, without IDs and times.
func (s *side) seen() (all []string) {
	names, ctx := s.names, s.t.Context()
	pods, err := s.rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: s.labels()}})
	require.NoError(s.t, err)
	for _, p := range pods.GetItems() {
		r, err := s.rt.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId()})
		require.NoError(s.t, err)
		all = append(all, fmt.Sprintln(names[p.GetId()], p.GetState(), r.GetStatus().GetState(), r.GetStatus().GetNetwork().GetIp() != ""))
	}
	list, err := s.rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: s.labels()}})
	require.NoError(s.t, err)
	for _, c := range list.GetContainers() {
		r, err := s.rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		require.NoError(s.t, err)
		st := r.GetStatus()
		all = append(all, fmt.Sprintln(names[c.GetId()], "in", names[c.GetPodSandboxId()], c.GetState(), st.GetState(),
			st.GetExitCode(), st.GetReason(), st.GetMessage() != "", st.GetStartedAt() > 0, st.GetFinishedAt() > 0,
			st.GetResources(), st.GetUser(), st.GetStopSignal(), len(st.GetMounts())))
	}
	slices.Sort(all)
	return all
}

// act makes one random call and returns its description.
func (s *side) act(rnd *rand.Rand) (call string, err error) {
	ctx := s.t.Context()
	pod, attempt := fmt.Sprint("pod", rnd.IntN(2)), rnd.Uint32N(2)
	key := fmt.Sprint(pod, "#", attempt)
	images := slices.Sorted(maps.Keys(scripts()))
	image := images[rnd.IntN(len(images))]
	kind := image[len("demo/") : len(image)-len(":1")]
	name := fmt.Sprint(key, "/", kind, "#", rnd.Uint32N(2))
	switch op := rnd.IntN(22); op {
	case 0, 1, 2:
		return "run " + key, s.runPod(pod, attempt)
	case 3, 4, 5, 6, 7:
		return "create " + name, s.create(key, kind, image, uint32(name[len(name)-1]-'0'))
	case 8, 9, 10, 11:
		return "start " + name, s.start(name)
	case 12, 13:
		grace := rnd.Int64N(2)
		if kind != "stubborn" {
			grace *= 30 // no other program needs its grace period, even on a busy machine
		}
		_, err = s.rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: s.id(name), Timeout: grace})
		return fmt.Sprint("stop ", name, " ", grace), err
	case 14, 15:
		_, err = s.rt.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: s.id(name)})
		return "remove " + name, err
	case 16:
		_, err = s.rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.id(key)})
		return "stop " + key, err
	case 17:
		_, err = s.rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.id(key)})
		return "remove " + key, err
	case 18:
		_, err = s.rt.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: s.id(name)})
		return "reopen " + name, err
	case 19:
		_, err = s.rt.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: s.id(name), Linux: &runtimeapi.LinuxContainerResources{CpuShares: 2 + rnd.Int64N(100)},
		})
		return "update " + name, err
	case 20:
		command := []string{"/bin/false", "/not/there"}[rnd.IntN(2)]
		r, err := s.rt.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: s.id(name), Cmd: []string{command}})
		return fmt.Sprint("exec ", command, " in ", name, ", which ends with ", r.GetExitCode()), err
	default:
		_, err = s.rt.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: s.id(name), Cmd: []string{"/bin/true"}})
		return "exec " + name, err
	}
}

// TestFake_MatchesContainerd makes the same random calls on the fake and on containerd.
func TestFake_MatchesContainerd(t *testing.T) {
	needs(t, sameAnswers)
	const seeds, calls = 4, 100
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			tag := fmt.Sprintf("%d-%d", os.Getpid(), seed)
			a, b := newSide(t, bed.conn, true, tag), newSide(t, serveFake(t), false, tag)
			t.Cleanup(func() { bed.clear(t, a.labels()) })
			one, two := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1))
			for i := range calls {
				call, want := a.act(one)
				fakes, got := b.act(two)
				require.Equal(t, call, fakes)
				what := fmt.Sprintf("call %d, %s: containerd says %v, the fake %v", i, call, want, got)
				require.Equal(t, grpcstatus.Code(want).String(), grpcstatus.Code(got).String(), what)
				require.Equal(t, a.seen(), b.seen(), what)
			}
			require.Equal(t, a.stories(), b.stories())
		})
	}
}
