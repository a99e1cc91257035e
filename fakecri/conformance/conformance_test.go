package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeNode(t *testing.T) {
	Test(t, dialFake, fakeOptions())
}

// TestChecks_SkippedChecksAreNotRun has no image, so that any check that is not skipped fails.
func TestChecks_SkippedChecksAreNotRun(t *testing.T) {
	o := fakeOptions()
	o.Skip = map[string]string{}
	for _, name := range Checks() {
		if name != "node/version" {
			o.Skip[name] = "this test says so"
		}
	}
	o.Sleeper.Image = "demo/none:1"
	Test(t, dialFake, o)
}

func TestChecks_HaveDifferentNames(t *testing.T) {
	names := Checks()
	slices.Sort(names)
	require.Len(t, slices.Compact(names), len(checks()))
}

func TestOptions_ValidateReportsProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"nothing": {func(o *Options) { *o = Options{} }, []string{
			"Sleeper.Image", "Sleeper.Ready", "Stubborn.Image", "Completer.Image", "Failer.Image", "Failer.ExitCode", "Broken.Image",
			"Exec.Print", "Exec.Output", "Exec.Fail", "Exec.ExitCode", "Exec.Sleep", "Exec.Missing", "PullImage", "MissingImage",
		}},
		"an unknown check":    {func(o *Options) { o.Skip = map[string]string{"sandbox": "x"} }, []string{`unknown check "sandbox"`}},
		"no reason":           {func(o *Options) { o.Skip = map[string]string{"log/is-written": ""} }, []string{`"log/is-written" has no reason`}},
		"half a second":       {func(o *Options) { o.Grace = time.Second / 2 }, []string{"Grace is whole seconds"}},
		"negative":            {func(o *Options) { o.ChangeTimeout = -1 }, []string{"must not be negative"}},
		"a failer that works": {func(o *Options) { o.Failer.ExitCode = 0 }, []string{"Failer.ExitCode"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := fakeOptions()
			require.NoError(t, o.Validate())
			tc.change(&o)
			for _, want := range tc.want {
				require.ErrorContains(t, o.Validate(), want)
			}
		})
	}
	require.NoError(t, Shell("busybox", "pulled", "missing").Validate())
}

func TestDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	require.Equal(t, []time.Duration{30 * time.Second, 5 * time.Second, time.Second}, []time.Duration{o.CallTimeout, o.ChangeTimeout, o.Grace})
	o = Options{CallTimeout: 1, ChangeTimeout: 2, Grace: 3}.withDefaults()
	require.Equal(t, []time.Duration{1, 2, 3}, []time.Duration{o.CallTimeout, o.ChangeTimeout, o.Grace})
}
