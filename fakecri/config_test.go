package fakecri_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

func TestConfig_ZeroValueGivesAnEmptyNode(t *testing.T) {
	n, err := fakecri.New(fakecri.Config{})
	require.NoError(t, err)
	images, err := n.ListImages(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, images)
	status, err := n.Status(t.Context(), true)
	require.NoError(t, err)
	for _, c := range status.GetStatus().GetConditions() {
		require.True(t, c.GetStatus(), c.GetType())
	}
	require.Len(t, status.GetStatus().GetConditions(), 2)
	require.Equal(t, "runc", status.GetRuntimeHandlers()[1].GetName())
	version, err := n.Version(t.Context(), "whatever")
	require.NoError(t, err)
	require.Equal(t, "fakecri", version.GetRuntimeName())
	require.Equal(t, "v1", version.GetRuntimeApiVersion())
	config, err := n.RuntimeConfig(t.Context())
	require.NoError(t, err)
	require.Equal(t, runtimeapi.CgroupDriver_CGROUPFS, config.GetLinux().GetCgroupDriver())
	require.NoError(t, n.UpdateRuntimeConfig(t.Context(), nil))
	require.NoError(t, n.Close(t.Context()))
}

func TestConfig_ValidateReportsEveryProblem(t *testing.T) {
	cfg := fakecri.Config{
		PullAny:  true,
		Images:   []fakecri.Image{{Name: "A"}, {Name: "a"}, {Name: "b", Tags: []string{"docker.io/library/a:latest"}}},
		Registry: []fakecri.Image{{Tags: []string{"a"}}},
		Programs: map[string]fakecri.Program{
			"a":         {Runtime: -1},
			"library/a": {},
			"B":         {},
			"c":         {ExitCode: 1},
			"d":         {Runtime: 1, OOMKilled: true, ExitCode: 1},
			"e":         {Runtime: 1, Crashes: -1},
			"f":         {TermDelay: -1},
			"g":         {IgnoreTerm: true, TermExitCode: new(int32)},
			"h":         {Exec: map[string]fakecri.Exec{"ls": {Runtime: -1}}},
			"i":         {Crashes: 1},
			"j":         {OOMKilled: true},
		},
	}
	_, err := fakecri.New(cfg)
	require.ErrorContains(t, err, "fakecri: invalid config: ")
	require.Equal(t, []string{
		`field Images[0]: image name "A": invalid reference format: repository name (library/A) must be lowercase`,
		`field Images[2]: duplicate image name "docker.io/library/a:latest"`,
		`field Registry[0]: image name "": invalid reference format`,
		`field Programs: image name "B": invalid reference format: repository name (library/B) must be lowercase`,
		`field Programs["a"]: field Runtime: -1ns is negative`,
		`field Programs["c"]: fields ExitCode, OOMKilled and Crashes require Runtime: without it the program never exits by itself`,
		`field Programs["d"]: field ExitCode: a program that is killed for memory has exit code 137`,
		`field Programs["e"]: field Crashes: -1 is negative`,
		`field Programs["f"]: field TermDelay: -1ns is negative`,
		`field Programs["g"]: fields TermDelay and TermExitCode: the program ignores SIGTERM`,
		`field Programs["h"]: field Exec["ls"].Runtime: -1ns is negative`,
		`field Programs["i"]: fields ExitCode, OOMKilled and Crashes require Runtime: without it the program never exits by itself`,
		`field Programs["j"]: fields ExitCode, OOMKilled and Crashes require Runtime: without it the program never exits by itself`,
		`field Programs: "a" and "library/a" are the same image`,
	}, strings.Split(cfg.Validate().Error(), "\n"))
}

func TestNew_CopiesTheConfig(t *testing.T) {
	code := int32(7)
	programs := map[string]fakecri.Program{"a": {TermExitCode: &code, Exec: map[string]fakecri.Exec{}}}
	cfg := fakecri.Config{Images: []fakecri.Image{{Name: "a"}}, Programs: programs, RuntimeHandlers: []string{"kata"}}
	b := newBed(t, func(c *fakecri.Config) { *c = cfg })
	code, cfg.RuntimeHandlers[0] = 9, "changed"
	programs["a"].Exec["ls"] = fakecri.Exec{}
	delete(programs, "a")

	sandbox, err := b.RunPodSandbox(t.Context(), podConfig("a", 0), "kata")
	require.NoError(t, err)
	id := b.make(sandbox, "a", "app", "a")
	require.NoError(t, b.StartContainer(t.Context(), id))
	_, _, err = b.ExecSync(t.Context(), id, []string{"ls"}, 0)
	require.Error(t, err)
	require.NoError(t, b.StopContainer(t.Context(), id, 5))
	require.EqualValues(t, 7, b.status(id).GetExitCode())
}

func TestSeed_ChangesIDs(t *testing.T) {
	one := newBed(t)
	two := newBed(t, func(c *fakecri.Config) { c.Seed = 1 })
	require.NotEqual(t, one.pod("a"), two.pod("a"))
}

func TestLogger_LogsExits(t *testing.T) {
	var log strings.Builder
	b := newBed(t, func(c *fakecri.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	sandbox, _ := b.start("a", "demo/crash:1")
	b.clock.Step(time.Second)
	require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
	require.Contains(t, log.String(), `msg="container exited" container=default/a/app`)
	require.Contains(t, log.String(), "exitCode=1")
	require.Contains(t, log.String(), `msg="sandbox stopped" pod=default/a`)
}

func TestDemoImages_MatchDemoPrograms(t *testing.T) {
	images := fakecri.DemoImages()
	require.Len(t, images, len(fakecri.DemoPrograms()))
	for _, img := range images {
		require.Contains(t, fakecri.DemoPrograms(), img.Name)
		require.NotZero(t, img.SizeBytes)
	}
	require.NoError(t, fakecri.Config{Images: images, Programs: fakecri.DemoPrograms()}.Validate())
	fakecri.DemoPrograms()["more"] = fakecri.Program{}
	require.NotContains(t, fakecri.DemoPrograms(), "more")
}
