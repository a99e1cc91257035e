package logrotate_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/fakecri"
)

var _ logrotate.Runtime = cri.RuntimeService(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a node whose containers write logs below a temporary directory.
type bed struct {
	*fakecri.Node
	t       *testing.T
	root    string
	box     string
	sandbox *runtimeapi.PodSandboxConfig
}

func newBed(t *testing.T) *bed {
	t.Helper()
	node, err := fakecri.New(fakecri.Config{
		Images: []fakecri.Image{{Name: "demo/app:1"}}, WriteLogs: true, Record: true,
		Programs: map[string]fakecri.Program{"demo/app:1": {Log: []string{strings.Repeat("x", 100)}}},
	})
	require.NoError(t, err)
	b := &bed{Node: node, t: t, root: t.TempDir()}
	dir := filepath.Join(b.root, "ns_pod_uid")
	b.sandbox = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid"}, LogDirectory: dir,
	}
	b.box, err = node.RunPodSandbox(t.Context(), b.sandbox, "")
	require.NoError(t, err)
	return b
}

// start starts a container and returns its id and the path of its log.
func (b *bed) start(name string) (id, path string) {
	b.t.Helper()
	path = filepath.Join(b.sandbox.GetLogDirectory(), name, "0.log")
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	id, err := b.CreateContainer(b.t.Context(), b.box, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "demo/app:1"},
		LogPath: filepath.Join(name, "0.log"), Labels: map[string]string{"name": name},
	}, b.sandbox)
	require.NoError(b.t, err)
	require.NoError(b.t, b.StartContainer(b.t.Context(), id))
	return id, path
}

func (b *bed) count(method string) (n int) {
	for _, c := range b.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

func (b *bed) rotator(change func(*logrotate.Config)) *logrotate.Rotator {
	b.t.Helper()
	cfg := logrotate.Config{Runtime: b, PodLogs: b.root, Policy: logrotate.Policy{MaxSizeBytes: 100}}
	if change != nil {
		change(&cfg)
	}
	r, err := logrotate.New(cfg)
	require.NoError(b.t, err)
	return r
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	require.NoError(t, err)
	_, err = f.WriteString(strings.Repeat("y", 200) + "\n")
	require.NoError(t, errors.Join(err, f.Close()))
}

// beside returns the names in a log's directory.
func beside(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRotate_CompressesAndRemovesTheOldest(t *testing.T) {
	b := newBed(t)
	_, path := b.start("app")
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	var told []logrotate.Rotation
	r := b.rotator(func(c *logrotate.Config) {
		c.Clock, c.MaxFiles = clock, 3
		c.Observer.Rotated = func(r logrotate.Rotation) { told = append(told, r) }
	})
	var seen [][]string
	for range 4 {
		require.NoError(t, os.Chmod(path, 0o666)) // permissions that exceed the umask
		res, err := r.Rotate(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, res.Rotated)
		require.Equal(t, 1, res.Running)
		seen = append(seen, beside(t, path))
		fill(t, path)
		clock.Step(time.Second)
	}
	require.Equal(t, [][]string{
		{"0.log", "0.log.20260102-030405"},
		{"0.log", "0.log.20260102-030405.gz", "0.log.20260102-030406"},
		{"0.log", "0.log.20260102-030406.gz", "0.log.20260102-030407"},
		{"0.log", "0.log.20260102-030407.gz", "0.log.20260102-030408"},
	}, seen)
	info, err := os.Stat(path + ".20260102-030407.gz")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode())
	require.Len(t, told, 4)
	require.Equal(t, "ns_pod_uid/app/0.log.20260102-030405", told[0].To)
	require.Equal(t, path, told[0].Path)
	require.Greater(t, told[0].SizeBytes, int64(100))
	require.Equal(t, 1, b.count("ContainerStatus"), "the status must be requested once per container")
	require.Equal(t, 4, b.count("ListContainers"), "containers must be listed once per pass")
}

func TestRotate_SmallLogsAreOnlyChecked(t *testing.T) {
	b := newBed(t)
	_, path := b.start("app")
	r := b.rotator(func(c *logrotate.Config) { c.MaxSizeBytes = 1000 })
	for range 3 {
		res, err := r.Rotate(t.Context())
		require.NoError(t, err)
		require.Zero(t, res.Rotated)
	}
	require.Equal(t, []string{"0.log"}, beside(t, path))
	require.Zero(t, b.count("ReopenContainerLog"))
}

func TestRotate_NegativeSizeDisablesIt(t *testing.T) {
	b := newBed(t)
	b.start("app")
	r := b.rotator(func(c *logrotate.Config) { c.MaxSizeBytes = -1 })
	res, err := r.Rotate(t.Context())
	require.NoError(t, err)
	require.Zero(t, res)
	require.Zero(t, b.count("ListContainers"))
}

func TestRotate_IgnoresContainersOfOthers(t *testing.T) {
	b := newBed(t)
	_, ours := b.start("ours")
	_, theirs := b.start("theirs")
	r := b.rotator(func(c *logrotate.Config) {
		c.Owned = func(c *runtimeapi.Container) bool { return c.GetLabels()["name"] == "ours" }
	})
	res, err := r.Rotate(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, res.Rotated)
	require.Len(t, beside(t, ours), 2)
	require.Len(t, beside(t, theirs), 1)
}

func TestRotate_FailedReopenRestoresTheName(t *testing.T) {
	b := newBed(t)
	_, bad := b.start("bad")
	_, good := b.start("good")
	require.NoError(t, b.Fail("ReopenContainerLog", fakecri.Fault{Object: "ns/pod/bad", Err: errors.New("refused")}))
	clock := testingclock.NewFakeClock(time.Now())
	r := b.rotator(func(c *logrotate.Config) { c.Clock = clock })
	res, err := r.Rotate(t.Context())
	require.ErrorContains(t, err, "refused")
	require.Equal(t, 1, res.Rotated)
	require.Equal(t, []string{"0.log"}, beside(t, bad))
	require.Len(t, beside(t, good), 2)

	calls := b.count("ReopenContainerLog")
	_, err = r.Rotate(t.Context())
	require.NoError(t, err)
	require.Equal(t, calls, b.count("ReopenContainerLog"), "a failed reopening must back off")
	clock.Step(11 * time.Second)
	_, err = r.Rotate(t.Context())
	require.ErrorContains(t, err, "refused")
	b.ClearFaults("ReopenContainerLog")
	clock.Step(21 * time.Second)
	_, err = r.Rotate(t.Context())
	require.NoError(t, err)
	require.Len(t, beside(t, bad), 2)
}

func TestRotate_HungReopenTimesOutAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in the bubble, only the hanging call takes time
		b := newBed(t)
		_, path := b.start("app")
		require.NoError(t, b.Fail("ReopenContainerLog", fakecri.Fault{Hang: true}))
		r := b.rotator(func(c *logrotate.Config) { c.CallTimeout = time.Second })
		_, err := r.Rotate(t.Context())
		require.ErrorContains(t, err, "reopen log")
		require.Equal(t, []string{"0.log"}, beside(t, path))
	})
}

func TestRotate_MissingLogIsReopened(t *testing.T) {
	b := newBed(t)
	_, path := b.start("app")
	require.NoError(t, os.Rename(path, path+".20260102-030405")) // as a process does that ends after the rename
	res, err := b.rotator(nil).Rotate(t.Context())
	require.NoError(t, err)
	require.Zero(t, res.Rotated)
	require.Equal(t, []string{"0.log", "0.log.20260102-030405"}, beside(t, path))
}

func TestRotate_DeletedContainersAreNoErrors(t *testing.T) {
	gone := grpcstatus.Error(codes.NotFound, "gone")
	for _, method := range []string{"ContainerStatus", "ReopenContainerLog"} {
		t.Run(method, func(t *testing.T) {
			b := newBed(t)
			_, path := b.start("app")
			require.NoError(t, b.Fail(method, fakecri.Fault{Err: gone}))
			res, err := b.rotator(nil).Rotate(t.Context())
			require.NoError(t, err)
			require.Zero(t, res.Rotated)
			require.Equal(t, []string{"0.log"}, beside(t, path))
			require.NoError(t, os.Remove(path))
			_, err = b.rotator(nil).Rotate(t.Context())
			require.NoError(t, err)
		})
	}
}

func TestRotate_MalformedAnswersOfTheRuntime(t *testing.T) {
	for _, answer := range []fakecri.Answer{{Nil: true}, {Bare: true}} {
		b := newBed(t)
		_, path := b.start("app")
		require.NoError(t, b.Fail("ListContainers", fakecri.Fault{Answer: answer, Times: 1}))
		require.NoError(t, b.Fail("ContainerStatus", fakecri.Fault{Answer: answer}))
		r := b.rotator(nil)
		for range 3 {
			_, err := r.Rotate(t.Context())
			require.NoError(t, err)
		}
		require.Contains(t, beside(t, path), "0.log")
	}
}

func TestRotate_FailingListsAndStatuses(t *testing.T) {
	for method, text := range map[string]string{"ListContainers": "list containers", "ContainerStatus": "get log path of container "} {
		b := newBed(t)
		b.start("app")
		require.NoError(t, b.Fail(method, fakecri.Fault{Err: errors.New("busy")}))
		_, err := b.rotator(nil).Rotate(t.Context())
		require.ErrorContains(t, err, text)
	}
}

func TestRunning_ReplacesTheList(t *testing.T) {
	b := newBed(t)
	id, path := b.start("app")
	var fails error
	r := b.rotator(func(c *logrotate.Config) {
		c.Running = func(context.Context) ([]logrotate.Log, error) {
			return []logrotate.Log{{}, {ContainerID: id, Path: path}, {ContainerID: id, Path: path}}, fails
		}
	})
	res, err := r.Rotate(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, res.Rotated)
	require.Zero(t, b.count("ListContainers")+b.count("ContainerStatus"))
	fails = errors.New("no idea")
	_, err = r.Rotate(t.Context())
	require.ErrorIs(t, err, fails)
}

func TestRotate_TouchesNothingOutsideAndFollowsNoLinks(t *testing.T) {
	b := newBed(t)
	_, path := b.start("app")
	secret := filepath.Join(t.TempDir(), "secret")
	fill(t, secret)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(secret, path))
	_, err := b.rotator(nil).Rotate(t.Context())
	require.ErrorContains(t, err, "not a regular file")
	require.Equal(t, []string{"0.log"}, beside(t, path))

	other := b.rotator(func(c *logrotate.Config) { c.PodLogs = t.TempDir() })
	res, err := other.Rotate(t.Context())
	require.NoError(t, err)
	require.Zero(t, res.Rotated)
}

// TestRotate_DoesNotCompressALink checks a rotated log that is a link to another file.
func TestRotate_DoesNotCompressALink(t *testing.T) {
	b := newBed(t)
	_, path := b.start("app")
	secret := filepath.Join(b.root, "secret") // the target is inside the root
	fill(t, secret)
	require.NoError(t, os.Symlink(secret, path+".20250102-030405"))
	res, err := b.rotator(nil).Rotate(t.Context())
	require.ErrorContains(t, err, "not a regular file")
	require.Equal(t, 1, res.Rotated)
	require.FileExists(t, secret)
	require.False(t, slices.ContainsFunc(beside(t, path), func(n string) bool { return strings.HasSuffix(n, ".gz") }))
}

func TestRotate_NoLogs(t *testing.T) {
	b := newBed(t)
	b.start("app")
	r := b.rotator(func(c *logrotate.Config) { c.PodLogs = filepath.Join(b.root, "none") })
	_, err := r.Rotate(t.Context())
	require.NoError(t, err)
	notFolder := filepath.Join(b.root, "file")
	fill(t, notFolder)
	_, err = b.rotator(func(c *logrotate.Config) { c.PodLogs = notFolder }).Rotate(t.Context())
	require.ErrorContains(t, err, "open pod logs")
}

func TestRotate_PathThatIsTheFolderOfLogs(t *testing.T) {
	b := newBed(t)
	r := b.rotator(func(c *logrotate.Config) {
		c.Running = func(context.Context) ([]logrotate.Log, error) {
			return []logrotate.Log{{ContainerID: "c", Path: b.root}}, nil
		}
	})
	res, err := r.Rotate(t.Context())
	require.NoError(t, err)
	require.Zero(t, res.Rotated)
}

func TestRotate_TookCountsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBed(t).rotator(func(c *logrotate.Config) {
			c.Running = func(context.Context) ([]logrotate.Log, error) {
				time.Sleep(2 * time.Second) // the bubble's time
				return nil, nil
			}
		})
		res, err := r.Rotate(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, res.Took)
	})
}

func TestRotate_ManyWorkers(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		b.start(name)
	}
	res, err := b.rotator(func(c *logrotate.Config) { c.Workers = 3 }).Rotate(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5, res.Rotated)
}

func TestRun_RotatesEveryTenSecondsUntilCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes, mu := 0, sync.Mutex{}
		b := newBed(t)
		r := b.rotator(func(c *logrotate.Config) {
			c.Observer.Checked = func(logrotate.Result, error) { mu.Lock(); passes++; mu.Unlock() }
		})
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		go func() {
			time.Sleep(time.Second) // the bubble's time
			if err := r.Run(ctx); !errors.Is(err, logrotate.ErrRunning) {
				t.Errorf("error of the second Run: %v", err)
			}
		}()
		require.NoError(t, r.Run(ctx))
		require.Equal(t, 4, passes)
		synctest.Wait()
		_, err := r.Rotate(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestRun_ContinuesAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		require.NoError(t, b.Fail("ListContainers", fakecri.Fault{Err: errors.New("busy")}))
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		require.NoError(t, b.rotator(nil).Run(ctx))
		require.Equal(t, 3, b.count("ListContainers"))
	})
}

// TestRun_LogsFailures checks that successful and cancelled passes are not logged.
func TestRun_LogsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		passes := 0
		ctx, cancel := context.WithCancel(t.Context())
		r := newBed(t).rotator(func(c *logrotate.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.Running = func(ctx context.Context) ([]logrotate.Log, error) {
				switch passes++; passes {
				case 1:
					return nil, errors.New("busy")
				case 3:
					cancel()
					return nil, ctx.Err()
				}
				return nil, nil
			}
		})
		require.NoError(t, r.Run(ctx))
		require.Equal(t, 3, passes)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), `level=ERROR msg="log rotation failed, will retry" err="list running containers: busy"`)
	})
}

func TestValidate(t *testing.T) {
	_, err := logrotate.New(logrotate.Config{Policy: logrotate.Policy{MaxFiles: 1, Workers: -1, Interval: time.Second}, CallTimeout: -1})
	require.EqualError(t, err, `logrotate: invalid config: field Runtime is required
invalid MaxFiles 1, must be > 1
invalid configuration: containerLogMaxWorkers must be greater than or equal to 1
invalid configuration: containerLogMonitorInterval must be a positive time duration greater than or equal to 3s
field CallTimeout: -1ns is negative`)
}

func TestParseMaxSize(t *testing.T) {
	for text, want := range map[string]int64{"10Mi": 10 << 20, "1k": 1000, "-1": -1, "7": 7} {
		got, err := logrotate.ParseMaxSize(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for text, why := range map[string]string{
		"ten": "quantities must match", "0.5": "invalid max log size", "0": "invalid max log size", "": "quantities must match",
		"100Ei": "invalid max log size",
	} {
		_, err := logrotate.ParseMaxSize(text)
		require.ErrorContains(t, err, "failed to parse container log max size")
		require.ErrorContains(t, err, why, text)
	}
}

func FuzzParseMaxSize(f *testing.F) {
	f.Add("10Mi")
	f.Add("1e99999")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := logrotate.ParseMaxSize(text)
		require.Equal(t, err != nil, n == 0)
	})
}
