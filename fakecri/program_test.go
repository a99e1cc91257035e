package fakecri_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

func memoryLimit(bytes int64) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: bytes}
}

// startLimited starts a container with a memory limit.
func (b *bed) startLimited(image string, limit int64) string {
	b.t.Helper()
	config := containerConfig("app", image, 0)
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: memoryLimit(limit)}
	id, err := b.CreateContainer(b.t.Context(), b.pod("a"), config, podConfig("a", 0))
	require.NoError(b.t, err)
	require.NoError(b.t, b.StartContainer(b.t.Context(), id))
	return id
}

func (b *bed) limit(id string, bytes int64) {
	b.t.Helper()
	require.NoError(b.t, b.UpdateContainerResources(b.t.Context(), id, &runtimeapi.ContainerResources{Linux: memoryLimit(bytes)}))
}

// demo/leaky:1 allocates 8 MiB at its start and 8 MiB more every second.

func TestOOMKill_AtTheMemoryLimit(t *testing.T) {
	b := newBed(t)
	id := b.startLimited("demo/leaky:1", 40<<20-1)
	b.clock.Step(4*time.Second - 1)
	require.Equal(t, running, b.status(id).GetState())
	b.clock.Step(1)
	b.requireEnded(id, 137, "OOMKilled", 4*time.Second)
}

func TestOOMKill_AtOnceAboveTheLimit(t *testing.T) {
	b := newBed(t)
	b.requireEnded(b.startLimited("demo/leaky:1", 1<<20), 137, "OOMKilled", 0)
}

func TestOOMKill_NotWithoutALimit(t *testing.T) {
	b := newBed(t)
	_, id := b.start("a", "demo/leaky:1")
	b.clock.Step(1000 * time.Hour)
	require.Equal(t, running, b.status(id).GetState())
}

func TestOOMKill_NewLimitReschedules(t *testing.T) {
	b := newBed(t)
	id := b.startLimited("demo/leaky:1", 40<<20-1)
	b.clock.Step(2 * time.Second)
	b.limit(id, 80<<20-1) // a larger limit delays the kill by five seconds
	b.clock.Step(6 * time.Second)
	require.Equal(t, running, b.status(id).GetState())
	b.limit(id, 16<<20) // less than the current usage
	b.requireEnded(id, 137, "OOMKilled", 8*time.Second)
	b.limit(id, 1) // a limit has no effect on an exited container
	b.requireEnded(id, 137, "OOMKilled", 8*time.Second)
}

func TestOOMKill_NotAfterTheExit(t *testing.T) {
	b := newBed(t)
	id := b.startLimited("demo/leaky:1", 40<<20-1)
	require.NoError(t, b.Kill(id, 1))
	b.clock.Step(time.Hour)
	b.requireEnded(id, 1, "Error", 0)

	id = b.make(b.pod("b"), "b", "app", "demo/leaky:1")
	b.limit(id, 9<<20)
	require.NoError(t, b.StartContainer(t.Context(), id))
	require.NoError(t, b.SetUnknown(id))
	b.clock.Step(time.Hour)
	require.Equal(t, unknown, b.status(id).GetState()) // the kill is not visible in state unknown
}

func TestHealthCommand(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.Clock = nil
		c.Programs["demo/web:1"] = fakecri.Program{
			HealthyAfter: time.Minute,
			Exec:         map[string]fakecri.Exec{"ready": {Health: true, Stdout: "I am"}, "true": {}},
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, id := b.start("a", "demo/web:1")
		ready := func() error {
			_, _, err := b.ExecSync(t.Context(), id, []string{"ready"}, 0)
			return err
		}
		require.ErrorContains(t, ready(), "exited with 1")
		_, _, err := b.ExecSync(t.Context(), id, []string{"true"}, 0)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, ready())
		require.NoError(t, b.SetHealthy(id, false))
		require.ErrorContains(t, ready(), "exited with 1")
		require.NoError(t, b.SetHealthy(id, true))
		require.NoError(t, ready())
	})
}

func TestLogInterval(t *testing.T) {
	dir := t.TempDir()
	b := newBed(t, func(c *fakecri.Config) {
		c.WriteLogs = true
		c.Programs["demo/chatty:1"] = fakecri.Program{Runtime: 25 * time.Second, Log: []string{"one", "two"}, LogInterval: 10 * time.Second}
	})
	config, pod := containerConfig("app", "demo/chatty:1", 0), podConfig("a", 0)
	config.LogPath, pod.LogDirectory = "0.log", dir
	id, err := b.CreateContainer(t.Context(), b.pod("a"), config, pod)
	require.NoError(t, err)
	require.NoError(t, b.StartContainer(t.Context(), id))
	b.clock.Step(time.Hour)
	b.requireEnded(id, 0, "Completed", 25*time.Second)
	text, err := os.ReadFile(filepath.Join(dir, "0.log"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"2030-01-02T03:04:05Z stdout F one", "2030-01-02T03:04:05Z stdout F two",
		"2030-01-02T03:04:15Z stdout F one", "2030-01-02T03:04:15Z stdout F two",
		"2030-01-02T03:04:25Z stdout F one", "2030-01-02T03:04:25Z stdout F two",
	}, strings.Split(strings.TrimSpace(string(text)), "\n"))

	// A log that cannot be written does not stop the program.
	config.Metadata.Attempt = 1
	id, err = b.CreateContainer(t.Context(), config0(t, b), config, pod)
	require.NoError(t, err)
	require.NoError(t, b.StartContainer(t.Context(), id))
	require.NoError(t, os.RemoveAll(dir))
	b.clock.Step(20 * time.Second)
	require.Equal(t, running, b.status(id).GetState())
	require.NoError(t, b.SetUnknown(id))
	b.clock.Step(time.Hour)
	require.Equal(t, unknown, b.status(id).GetState())
}

// config0 returns the id of the only sandbox.
func config0(t *testing.T, b *bed) string {
	t.Helper()
	list, err := b.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0].GetId()
}

func TestPrograms_AreFoundByCommand(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.Programs["demo/web:1 migrate --all now"] = fakecri.Program{Runtime: time.Second, ExitCode: 4}
	})
	sandbox := b.pod("a")
	run := func(name string, command, args []string) string {
		config := containerConfig(name, "docker.io/demo/web:1", 0)
		config.Command, config.Args = command, args
		id, err := b.CreateContainer(t.Context(), sandbox, config, podConfig("a", 0))
		require.NoError(t, err)
		require.NoError(t, b.StartContainer(t.Context(), id))
		return id
	}
	migrate := run("a", []string{"migrate"}, []string{"--all", "now"})
	other := run("b", []string{"migrate"}, nil)
	plain := run("c", nil, nil)
	b.clock.Step(time.Minute)
	b.requireEnded(migrate, 4, "Error", time.Second)
	require.Equal(t, running, b.status(other).GetState())
	require.Equal(t, running, b.status(plain).GetState())
}

func TestProgramFor(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.ProgramFor = func(config *runtimeapi.ContainerConfig) *fakecri.Program {
			switch strings.Join(config.GetCommand(), " ") {
			case "fail":
				return &fakecri.Program{Runtime: time.Second, ExitCode: 4}
			case "broken":
				return &fakecri.Program{Runtime: -1}
			}
			return nil
		}
	})
	sandbox := b.pod("a")
	create := func(name, command string) (string, error) {
		config := containerConfig(name, "demo/job:1", 0)
		config.Command = []string{command}
		return b.CreateContainer(t.Context(), sandbox, config, podConfig("a", 0))
	}
	failing, err := create("a", "fail")
	require.NoError(t, err)
	require.NoError(t, b.StartContainer(t.Context(), failing))
	other, err := create("b", "other")
	require.NoError(t, err)
	require.NoError(t, b.StartContainer(t.Context(), other))
	b.clock.Step(time.Minute)
	b.requireEnded(failing, 4, "Error", time.Second)
	b.requireEnded(other, 0, "Completed", time.Second/2)

	_, err = create("c", "broken")
	requireCode(t, codes.Unknown, err, "the program of the container is invalid: field Runtime: -1ns is negative")
	_, err = create("c", "fail")
	require.NoError(t, err, "the name is not reserved")
}

func TestApply(t *testing.T) {
	b := newBed(t)
	_, before := b.start("a", "demo/web:1")
	programs := map[string]fakecri.Program{"demo/web": {}, "demo/web:1": {Runtime: -1}, "demo/wbe:1": {}, "demo/web:1  x": {}}
	err := b.Apply(programs)
	require.Equal(t, []string{
		`fakecri: invalid programs: field Programs: image "demo/wbe:1" is neither in Images nor in Registry`,
		`field Programs: image "demo/web" is neither in Images nor in Registry`,
		`field Programs["demo/web:1"]: field Runtime: -1ns is negative`,
		`field Programs: image name "demo/web:1  x": the words of a command are separated by single spaces`,
	}, strings.Split(err.Error(), "\n"))
	_, unchanged := b.start("b", "demo/web:1")

	paths := map[string]int{"/": 404}
	require.NoError(t, b.Apply(map[string]fakecri.Program{
		"docker.io/demo/web:1": {Runtime: time.Second, Ports: []fakecri.Port{{Number: 1, Paths: paths}}},
	}))
	_, changed := b.start("c", "demo/web:1")
	_, other := b.start("d", "demo/busy:1")
	b.clock.Step(time.Minute)
	for _, id := range []string{before, unchanged, other} {
		require.Equal(t, running, b.status(id).GetState())
	}
	b.requireEnded(changed, 0, "Completed", time.Second)
}

func TestApply_AcceptsEveryNameOfAnImage(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) {
		c.Registry = []fakecri.Image{{Name: "far:1", Tags: []string{"far:2"}}}
	})
	program := fakecri.Program{Runtime: time.Second}
	require.NoError(t, b.Apply(map[string]fakecri.Program{"far:1": program, "docker.io/library/far:2": program}))
	b = newBed(t, func(c *fakecri.Config) { c.PullAny = true })
	require.NoError(t, b.Apply(map[string]fakecri.Program{"anything": program}))
}

func TestValidateProgram(t *testing.T) {
	err := fakecri.Program{
		HealthyAfter: -1, LogInterval: -1, CPUMilli: 1_000_001,
		Memory: fakecri.Growth{Start: 2, Max: 1}, Disk: fakecri.Growth{Start: 3, Max: 1}, Inodes: fakecri.Growth{Start: 4, Max: 1},
		Ports: []fakecri.Port{
			{},
			{Number: 1, Protocol: "udp"},
			{Number: 1},
			{Number: 2, Protocol: fakecri.TCP, Paths: map[string]int{"a": 200, "/b": 100}},
		},
	}.Validate()
	require.Equal(t, []string{
		`field Ports[0]: field Number is required`,
		`field Ports[1]: field Protocol: "udp" is not one of "http", "grpc" and "tcp"`,
		`field Ports[2]: duplicate port 1`,
		`field Ports[3]: field Paths: a tcp port cannot have paths`,
		`field Paths["/b"]: 100 is not a status code from 200 to 599`,
		`field Paths: "a" does not begin with a slash`,
		`field HealthyAfter: -1ns is negative`,
		`field LogInterval: -1ns is negative`,
		`field Memory: field Max: 1 is less than Start, 2`,
		`field Disk: field Max: 1 is less than Start, 3`,
		`field Inodes: field Max: 1 is less than Start, 4`,
		`field CPUMilli: 1000001 is more than a thousand cores`,
	}, strings.Split(err.Error(), "\n"))
	require.ErrorContains(t, fakecri.Program{LogInterval: 1}.Validate(), "needs lines in Log")
}

func TestStoppedPrograms_LeaveNoTimers(t *testing.T) {
	b := newBed(t)
	_, id := b.start("a", "demo/leaky:1")
	b.limit(id, 1<<40)
	require.NoError(t, b.RemoveContainer(t.Context(), id))
	_, err := b.ContainerStatus(t.Context(), id, false)
	requireCode(t, codes.NotFound, err)
	b.clock.Step(1e6 * time.Second) // the kill was scheduled for an earlier time
	require.Empty(t, must(b.ListContainers(t.Context(), nil)))
}

func must[T any](v T, err error) T {
	if err != nil {
		return *new(T)
	}
	return v
}
