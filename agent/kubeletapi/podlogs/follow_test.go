package podlogs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
)

// output is what a follower writes.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	flushed string
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// Flush implements podlogs.Flusher: only flushed data is compared.
func (o *output) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushed = o.text.String()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flushed
}

// await waits until the output is want.
func (o *output) await(t *testing.T, want string) {
	t.Helper()
	end := time.After(time.Minute)
	for o.String() != want {
		select {
		case <-o.changed:
		case <-end:
			require.Equal(t, want, o.String())
		}
	}
}

// container is a container that writes a log as a runtime does.
type container struct {
	t    *testing.T
	src  podlogs.Source
	file *os.File
	over atomic.Bool
}

func newContainer(t *testing.T) *container {
	t.Helper()
	c := &container{t: t, src: logs(t, nil)}
	c.src.Ended = c.over.Load
	c.create(0)
	t.Cleanup(func() { require.NoError(t, c.file.Close()) })
	return c
}

func (c *container) path(name string) string { return filepath.Join(c.src.Root, c.src.Dir, name) }

// create creates the log file of an instance, or a new file after a rotation.
func (c *container) create(attempt int) {
	f, err := os.OpenFile(c.path(fmt.Sprintf("%d.log", attempt)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	c.file = f
}

func (c *container) write(specs ...string) {
	_, err := c.file.WriteString(logText(specs...))
	require.NoError(c.t, err)
}

// follow follows the container's log until the log has ended. It returns a function that waits
// for the end.
func (c *container) follow(o podlogs.Options) (*output, func() error) {
	out, done := newOutput(), make(chan error, 1)
	o.Follow = true
	go func() { done <- podlogs.CopyFast(context.WithoutCancel(c.t.Context()), out, c.src, o) }()
	return out, func() error { return <-done }
}

func TestFollower_SeesRotationRestartAndEnd(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.write("1 out F one")
	out, wait := c.follow(podlogs.Options{})
	out.await(t, "one\n")
	c.write("2 out F two")
	out.await(t, "one\ntwo\n")
	_, err := c.file.WriteString(strings.TrimSuffix(line("3 out F three"), "ee\n"))
	require.NoError(t, err)
	c.write("4 err F not now")
	out.await(t, "one\ntwo\nthr"+strings.TrimSuffix(line("4 err F not now"), "\n")+"\n")
	so := out.String()

	// A rotation: the runtime still writes to the old file for a moment.
	require.NoError(t, os.Rename(c.path("0.log"), c.path("0.log.20260102-030405")))
	old := c.file
	c.create(0)
	c.write("6 out F of the new file")
	_, err = old.WriteString(line("5 out F late"))
	require.NoError(t, err)
	require.NoError(t, old.Close())
	so += "late\nof the new file\n"
	out.await(t, so)

	// The container restarts, so that its partial line will never be completed.
	c.write("7 out P half a li")
	require.NoError(t, c.file.Close())
	c.create(1)
	c.write("8 out F again")
	so += "half a li\nagain\n"
	out.await(t, so)
	c.write("9 out F bye")
	c.over.Store(true)
	require.NoError(t, wait())
	require.Equal(t, so+"bye\n", out.String())
}

func TestFollower_StartPosition(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.write("1 out F one", "2 err F two", "3 out F three")
	for name, x := range map[string]struct {
		o             podlogs.Options
		first, second string
	}{
		"all":    {podlogs.Options{}, "one\ntwo\nthree\n", "four\nfive\n"},
		"none":   {podlogs.Options{TailLines: new(int64(0))}, "", "four\nfive\n"},
		"last":   {podlogs.Options{TailLines: new(int64(1))}, "three\n", "four\nfive\n"},
		"since":  {podlogs.Options{Since: at(4)}, "", "four\nfive\n"},
		"stderr": {podlogs.Options{Stream: podlogs.Stderr}, "two\n", "five\n"},
		"limit":  {podlogs.Options{LimitBytes: 16, TailLines: new(int64(2))}, "two\nthree\n", "four\nf"},
	} {
		out, wait := c.follow(x.o)
		<-out.changed // the follower has read all lines
		out.await(t, x.first)
		t.Cleanup(func() {
			require.NoError(t, wait(), name)
			require.Equal(t, x.first+x.second, out.String(), name)
		})
	}
	c.write("4 out F four", "5 err F five")
	c.over.Store(true)
}

func TestFollower_EndsWithItsContextAndWithTheFolder(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.write("1 out F one")
	ctx, cancel := context.WithCancel(t.Context())
	out, done := newOutput(), make(chan error, 1)
	go func() { done <- podlogs.CopyFast(ctx, out, c.src, podlogs.Options{Follow: true}) }()
	out.await(t, "one\n")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	out, wait := c.follow(podlogs.Options{})
	out.await(t, "one\n")
	c.write("2 out F two")
	require.NoError(t, os.RemoveAll(filepath.Dir(c.path(""))))
	c.over.Store(true)
	require.NoError(t, wait())
	require.Equal(t, "one\ntwo\n", out.String())
}

// reopener is a runtime whose ReopenContainerLog reopens the log of its only container.
type reopener struct{ reopen func() error }

func (r reopener) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return nil, errors.New("not needed")
}

func (r reopener) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, errors.New("not needed")
}

func (r reopener) ReopenContainerLog(context.Context, string) error { return r.reopen() }

// A container writes as fast as possible while its log is rotated repeatedly, and restarts.
// The follower writes each line once and in order.
func TestFollower_LosesNoLineInRotations(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	const lines, restarts = 6000, 3
	var mu sync.Mutex // guards the file to which the runtime writes
	attempt := 0
	rotator, err := logrotate.New(logrotate.Config{
		Runtime: reopener{func() error {
			mu.Lock()
			defer mu.Unlock()
			old := c.file
			c.create(attempt)
			return old.Close()
		}},
		Running: func(context.Context) ([]logrotate.Log, error) {
			mu.Lock()
			defer mu.Unlock()
			return []logrotate.Log{{ContainerID: "c", Path: c.path(fmt.Sprintf("%d.log", attempt))}}, nil
		},
		PodLogs: c.src.Root, Policy: logrotate.Policy{MaxSizeBytes: 10_000, MaxFiles: 100},
	})
	require.NoError(t, err)
	stop := make(chan struct{})
	var rotating sync.WaitGroup
	rotated := 0
	rotating.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			result, err := rotator.Rotate(t.Context())
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("rotation failed: %v", err)
			}
			rotated += result.Rotated
		}
	})
	out, wait := c.follow(podlogs.Options{})
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	var want strings.Builder
	for i := range lines {
		mu.Lock()
		if i > 0 && i%(lines/restarts) == 0 {
			require.NoError(t, c.file.Close())
			attempt++
			c.create(attempt)
		}
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", i%100))
		c.write(fmt.Sprintf("%d out F %s", i, text))
		mu.Unlock()
		want.WriteString(text + "\n")
		if i%20 == 0 {
			<-pause.C
		}
	}
	close(stop)
	rotating.Wait()
	c.over.Store(true)
	require.NoError(t, wait())
	require.Equal(t, want.String(), out.String())
	require.Greater(t, rotated, 3)
	t.Logf("the log was rotated %d times", rotated)
}
