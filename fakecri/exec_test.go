package fakecri_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/fakecri"
)

// withTools configures a node whose demo/web:1 has commands.
func withTools(c *fakecri.Config) {
	c.Clock = nil
	c.Programs["demo/web:1"] = fakecri.Program{Exec: map[string]fakecri.Exec{
		"cat /ok": {Stdout: "fine", Stderr: "hm"},
		"check":   {ExitCode: 3, Stderr: "not well"},
		"sleep":   {Runtime: 5 * time.Second},
	}}
}

func TestExecSync(t *testing.T) {
	for name, tc := range map[string]struct {
		cmd            []string
		timeout        time.Duration
		stdout, stderr string
		code           codes.Code
		exit           int
		took           time.Duration
	}{
		"a command's output":   {cmd: []string{"cat", "/ok"}, stdout: "fine", stderr: "hm"},
		"an exit code":         {cmd: []string{"check"}, stderr: "not well", exit: 3, code: codes.Unknown},
		"a command takes time": {cmd: []string{"sleep"}, took: 5 * time.Second},
		"within the timeout":   {cmd: []string{"sleep"}, timeout: 5 * time.Second, took: 5 * time.Second},
		"past the timeout":     {cmd: []string{"sleep"}, timeout: 2 * time.Second, took: 2 * time.Second, code: codes.DeadlineExceeded},
		"not in the image":     {cmd: []string{"cat", "/none"}, code: codes.Unknown},
		"no command":           {code: codes.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, withTools)
				_, id := b.start("a", "demo/web:1")
				before := time.Now()
				stdout, stderr, err := b.ExecSync(t.Context(), id, tc.cmd, tc.timeout)
				require.Equal(t, tc.took, time.Since(before))
				require.Equal(t, tc.stdout, string(stdout))
				require.Equal(t, tc.stderr, string(stderr))
				requireCode(t, tc.code, err)
				var exit utilexec.ExitError
				if tc.exit == 0 {
					require.NotErrorAs(t, err, &exit)
					return
				}
				require.ErrorAs(t, err, &exit)
				require.Equal(t, tc.exit, exit.ExitStatus())
				require.ErrorContains(t, err, "command 'check' exited with 3: not well")
			})
		})
	}
}

func TestExecSync_RequiresARunningContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withTools)
		_, id := b.start("a", "demo/web:1")
		done := make(chan error, 1)
		run := func(ctx context.Context) {
			_, _, err := b.ExecSync(ctx, id, []string{"sleep"}, 0)
			done <- err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		run(ctx)
		requireCode(t, codes.DeadlineExceeded, <-done)

		go run(t.Context())
		synctest.Wait()
		require.NoError(t, b.Kill(id, 1))
		var exit utilexec.ExitError
		require.ErrorAs(t, <-done, &exit)
		require.Equal(t, 137, exit.ExitStatus())

		run(t.Context())
		requireCode(t, codes.Unknown, <-done, "CONTAINER_EXITED state")
		requireCode(t, codes.Unknown, b.ReopenContainerLog(t.Context(), id), "not running")
	})
}

func TestExecSync_SucceedsWithoutATable(t *testing.T) {
	b := newBed(t)
	_, id := b.start("a", "demo/web:1")
	stdout, stderr, err := b.ExecSync(t.Context(), id, []string{"anything"}, time.Second)
	require.NoError(t, err)
	require.Empty(t, stdout)
	require.Empty(t, stderr)
}

func TestLogs(t *testing.T) {
	dir := t.TempDir()
	start := func(b *bed, logDir string) (string, error) {
		config, pod := containerConfig("app", "demo/web:1", 0), podConfig("a", 0)
		config.LogPath, pod.LogDirectory = "0.log", logDir
		id, err := b.CreateContainer(t.Context(), b.pod("a"), config, pod)
		require.NoError(t, err)
		return id, b.StartContainer(t.Context(), id)
	}
	file := filepath.Join(dir, "0.log")

	_, err := start(newBed(t), dir)
	require.NoError(t, err)
	require.NoFileExists(t, file) // without WriteLogs no file is written

	write := func(c *fakecri.Config) { c.WriteLogs = true }
	b := newBed(t, write)
	id, err := start(b, dir)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "2030-01-02T03:04:05Z stdout F listening on :8080\n", string(text))

	require.NoError(t, os.Rename(file, file+".1"))
	require.NoError(t, b.ReopenContainerLog(t.Context(), id))
	require.FileExists(t, file)
	require.NoError(t, os.RemoveAll(dir))
	requireCode(t, codes.Unknown, b.ReopenContainerLog(t.Context(), id), "failed to create and open log file")

	b = newBed(t, write)
	id, err = start(b, filepath.Join(dir, "missing"))
	requireCode(t, codes.Unknown, err, "failed to create container loggers")
	require.Equal(t, "StartError", b.status(id).GetReason())

	b = newBed(t, write)
	b.start("b", "demo/web:1") // without a log path there is no log
}
