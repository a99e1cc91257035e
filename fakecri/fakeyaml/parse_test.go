package fakeyaml_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/fakeyaml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything has every field.
const everything = `
images:
- name: demo/web:1
  tags: [demo/web:latest]
  user: "1000"
  pinned: true
  layers:
  - {name: base, sizeBytes: 30Mi}
  - {name: web, sizeBytes: 5M}
registry:
- name: demo/job:1
  sizeBytes: 10Ki
  pull: {delay: 1s, bytesPerSecond: 5Mi, username: me, password: secret}
- name: demo/gone:1
  pull: {error: manifest unknown}
pullAny: true
disk: {capacityBytes: 2T, inodes: 100k}
programs:
  demo/web:1:
    runtime: 1m30s
    exitCode: 3
    crashes: 2
    termDelay: 2s
    termExitCode: 0
    healthyAfter: 5s
    ports:
    - {number: 8080, protocol: http, paths: {/broken: 500}}
    cpuMilli: 250
    memory: {start: 10Gi, perSecond: 1Mi, max: 1Ti}
    disk: {perSecond: 4Ki}
    inodes: {perSecond: 1}
    log: [still here]
    logInterval: 10s
    exec:
      cat /ready: {stdout: "yes", stderr: "no", health: true}
      sleep 5: {runtime: 5s, exitCode: 1}
  demo/web:1 migrate now:
    startError: no such file
  demo/job:1:
    runtime: 1s
    oomKilled: true
    exec: {}
  stubborn:
    ignoreTerm: true
  idle:
`

func TestEveryField(t *testing.T) {
	t.Parallel()
	cfg, err := fakeyaml.Parse([]byte(everything))
	require.NoError(t, err)
	require.Equal(t, fakecri.Config{
		Images: []fakecri.Image{{
			Name: "demo/web:1", Tags: []string{"demo/web:latest"}, User: "1000", Pinned: true,
			Layers: []fakecri.Layer{{Name: "base", SizeBytes: 30 << 20}, {Name: "web", SizeBytes: 5e6}},
		}},
		Registry: []fakecri.Image{
			{Name: "demo/job:1", SizeBytes: 10 << 10, Pull: fakecri.Pull{
				Delay: time.Second, BytesPerSecond: 5 << 20, Username: "me", Password: "secret",
			}},
			{Name: "demo/gone:1", Pull: fakecri.Pull{Error: "manifest unknown"}},
		},
		PullAny: true,
		Disk:    fakecri.Disk{CapacityBytes: 2e12, Inodes: 100e3},
		Programs: map[string]fakecri.Program{
			"demo/web:1": {
				Runtime: 90 * time.Second, ExitCode: 3, Crashes: 2,
				TermDelay: 2 * time.Second, TermExitCode: new(int32), HealthyAfter: 5 * time.Second,
				Ports:    []fakecri.Port{{Number: 8080, Protocol: fakecri.HTTP, Paths: map[string]int{"/broken": 500}}},
				CPUMilli: 250,
				Memory:   fakecri.Growth{Start: 10 << 30, PerSecond: 1 << 20, Max: 1 << 40},
				Disk:     fakecri.Growth{PerSecond: 4 << 10},
				Inodes:   fakecri.Growth{PerSecond: 1},
				Log:      []string{"still here"}, LogInterval: 10 * time.Second,
				Exec: map[string]fakecri.Exec{
					"cat /ready": {Stdout: "yes", Stderr: "no", Health: true},
					"sleep 5":    {Runtime: 5 * time.Second, ExitCode: 1},
				},
			},
			"demo/web:1 migrate now": {StartError: "no such file"},
			"demo/job:1":             {Runtime: time.Second, OOMKilled: true, Exec: map[string]fakecri.Exec{}},
			"stubborn":               {IgnoreTerm: true},
			"idle":                   {},
		},
	}, cfg)
	_, err = fakecri.New(cfg)
	require.NoError(t, err)
}

func TestEmptyDocuments(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{"", "{}", "# nothing\n", "images:\nregistry:\nprograms:\ndisk:\n"} {
		cfg, err := fakeyaml.Parse([]byte(doc))
		require.NoError(t, err, doc)
		require.Empty(t, cfg.Images)
		require.Empty(t, cfg.Programs)
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	cfg, err := fakeyaml.Parse([]byte(`
images:
- name: 5
  size: 1
  sizeBytes: 1Qi
- just a text
registry: {}
pullAny: perhaps
disk: [1]
programs:
  web:
    runtime: 5
    termDelay: 1 minute
    exitCode: 3000000000
    crashes: 1.5
    ports:
    - {number: 70000, paths: {/a: x}}
    memory: {start: -1, max: 99999999Ti}
    exec: {ls: {Runtime: 1s}}
    log: one line
    ignoreTerm: null
`))
	require.Equal(t, fakecri.Config{}, cfg)
	require.Equal(t, []string{
		`fakeyaml: disk: a mapping is wanted`,
		`images[0].name: a text is wanted; numbers need quotes`,
		`images[0].size: unknown field, there are layers, name, pinned, pull, sizeBytes, tags, user`,
		`images[0].sizeBytes: 1Qi is no size, such as 4096 or 64Mi`,
		`images[1]: a mapping is wanted`,
		`programs["web"].crashes: 1.5 is no whole number, or too large`,
		`programs["web"].exec["ls"].Runtime: unknown field, there are exitCode, health, runtime, stderr, stdout`,
		`programs["web"].exitCode: 3000000000 is no whole number, or too large`,
		`programs["web"].ignoreTerm: true or false is wanted`,
		`programs["web"].log: a list is wanted`,
		`programs["web"].memory.max: 99999999Ti is no size, such as 4096 or 64Mi`,
		`programs["web"].memory.start: -1 is no size, such as 4096 or 64Mi`,
		`programs["web"].ports[0].number: 70000 is no whole number, or too large`,
		`programs["web"].ports[0].paths["/a"]: x is no whole number, or too large`,
		`programs["web"].runtime: 5 is no duration, such as 500ms or 1m30s`,
		`programs["web"].termDelay: 1 minute is no duration, such as 500ms or 1m30s`,
		`pullAny: true or false is wanted`,
		`registry: a list is wanted`,
	}, strings.Split(err.Error(), "\n"))
}

func TestWhatIsReadIsValidated(t *testing.T) {
	t.Parallel()
	_, err := fakeyaml.Parse([]byte("images: [{name: web}]\nprograms:\n  wbe: {}\n  web: {exitCode: 1}\n"))
	require.ErrorContains(t, err, `field Programs: image "wbe" is neither in Images nor in Registry`)
	require.ErrorContains(t, err, `field Programs["web"]: fields ExitCode, OOMKilled and Crashes need a Runtime`)
}

func TestThingsThatAreNoDocument(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"a: b: c":                       "mapping values are not allowed",
		"pullAny: true\npullAny: false": `already`,
		"just a text":                   "document: a mapping is wanted",
		"[1]":                           "document: a mapping is wanted",
	} {
		_, err := fakeyaml.Parse([]byte(doc))
		require.ErrorContains(t, err, want, doc)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add("images: [{name: a, layers: [{name: x, sizeBytes: 1Ti}]}]")
	f.Add("programs: {a: {exec: {ls: {exitCode: -1}}}}\npullAny: true")
	f.Fuzz(func(t *testing.T, doc string) {
		cfg, err := fakeyaml.Parse([]byte(doc))
		if err != nil {
			require.Equal(t, fakecri.Config{}, cfg)
			return
		}
		_, err = fakecri.New(cfg)
		require.NoError(t, err)
	})
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]uint64{
		"0": 0, "7": 7, `"7"`: 7, "1k": 1000, "1Ki": 1024, "3M": 3e6, "3Mi": 3 << 20,
		"2G": 2e9, "2Gi": 2 << 30, "1T": 1e12, "1Ti": 1 << 40, "18446744073709551615": 1<<64 - 1,
	} {
		cfg, err := fakeyaml.Parse([]byte("disk: {capacityBytes: " + in + "}"))
		require.NoError(t, err, in)
		require.Equal(t, want, cfg.Disk.CapacityBytes, in)
	}
	for _, in := range []string{
		`""`, "1K", "1Kii", "1 Ki", "1.5Gi", "Ki", "-1", "1.5", "18446744073709551616", "16777216Ti", "true", "[1]", "null", "1Mk",
	} {
		_, err := fakeyaml.Parse([]byte("disk: {capacityBytes: " + in + "}"))
		require.ErrorContains(t, err, "disk.capacityBytes: ", in)
		require.ErrorContains(t, err, "is no size, such as 4096 or 64Mi", in)
	}
}

func TestWholeNumbersFitTheirFields(t *testing.T) {
	t.Parallel()
	for field, tc := range map[string]struct {
		good, bad []string
	}{
		"exitCode":     {[]string{"0", "-1", "2147483647"}, []string{"2147483648", "1.5", "one", "1e400", "null"}},
		"termExitCode": {[]string{"0", "143"}, []string{"-2147483649", "[]"}},
		"crashes":      {[]string{"3"}, []string{"9223372036854775808", "true"}},
	} {
		program := func(value string) []byte {
			return []byte("pullAny: true\nprograms: {web: {runtime: 1s, " + field + ": " + value + "}}")
		}
		for _, value := range tc.good {
			_, err := fakeyaml.Parse(program(value))
			require.NoError(t, err, "%s: %s", field, value)
		}
		for _, value := range tc.bad {
			_, err := fakeyaml.Parse(program(value))
			require.ErrorContains(t, err, `programs["web"].`+field+": ", value)
			require.ErrorContains(t, err, "is no whole number, or too large", value)
		}
	}
}

func TestTextsAreNotGuessed(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"1", "true", "null", "1.5", "[]", "{}"} {
		_, err := fakeyaml.Parse([]byte("images: [{name: web, user: " + value + "}]"))
		require.EqualError(t, err, "fakeyaml: images[0].user: a text is wanted; numbers need quotes", value)
	}
}

func TestAnEmptyTableOfCommandsIsNotTheSameAsNone(t *testing.T) {
	t.Parallel()
	cfg, err := fakeyaml.Parse([]byte("pullAny: true\nprograms: {none: {}, empty: {exec: {}}, nothing: {exec: }}"))
	require.NoError(t, err)
	require.Nil(t, cfg.Programs["none"].Exec)
	require.NotNil(t, cfg.Programs["empty"].Exec)
	require.NotNil(t, cfg.Programs["nothing"].Exec)
}

func TestErrorsAreInTheOrderOfPaths(t *testing.T) {
	t.Parallel()
	doc := []byte("programs: {c: 1, a: {zz: 1, b: 1}, b: [1]}\nimages: 1")
	_, first := fakeyaml.Parse(doc)
	require.Error(t, first)
	require.Len(t, strings.Split(first.Error(), "\n"), 5)
	for range 100 {
		_, err := fakeyaml.Parse(doc)
		require.EqualError(t, err, first.Error())
	}
}

// TestProgramsFromADocumentRun holds what a node does against the document.
func TestProgramsFromADocumentRun(t *testing.T) {
	t.Parallel()
	cfg, err := fakeyaml.Parse([]byte(`
images: [{name: leak, sizeBytes: 1Mi}]
programs:
  leak: {memory: {start: 8Mi, perSecond: 8Mi}, disk: {perSecond: 1Mi}}
  leak sleep 3: {runtime: 3s, exitCode: 4}
`))
	require.NoError(t, err)
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	cfg.Clock = clock
	n, err := fakecri.New(cfg)
	require.NoError(t, err)
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}
	sandbox, err := n.RunPodSandbox(t.Context(), pod, "")
	require.NoError(t, err)
	start := func(name string, command ...string) string {
		id, err := n.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "leak"}, Command: command,
			Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 40<<20 - 1}},
		}, pod)
		require.NoError(t, err)
		require.NoError(t, n.StartContainer(t.Context(), id))
		return id
	}
	leak, sleep := start("leak"), start("sleep", "sleep", "3")
	clock.Step(time.Minute)
	for id, want := range map[string]string{leak: "137 OOMKilled", sleep: "4 Error"} {
		resp, err := n.ContainerStatus(t.Context(), id, false)
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprint(resp.GetStatus().GetExitCode(), " ", resp.GetStatus().GetReason()))
	}
	require.EqualValues(t, 5<<20, n.DiskUsage().UsedBytes) // the image, and four seconds of writing
}
