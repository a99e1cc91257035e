package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A node is the runtime of one side, and its logs.
type node struct {
	w      *World
	root   string
	step   Step
	offset time.Duration // of the wall clock
	open   []*os.File    // file to which each container writes
	ended  map[int]bool
	calls  map[string]string
	line   int
	odd    bool // lists contain empty or duplicate entries
}

// An agent is one side: it runs a pass and returns the error. After a restart it is created
// again.
type agent interface {
	restart()
	pass(ctx context.Context) error
}

func play(t *testing.T, w *World, root string, side func(*testing.T, *node) agent) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx := klog.NewContext(t.Context(), logr.Discard())
		n := &node{w: w, root: root, ended: map[int]bool{}}
		require.NoError(t, n.prepare())
		a := side(t, n)
		for i, s := range w.Steps {
			time.Sleep(s.After)
			if n.begin(t, s); s.Restart || i == 0 {
				a.restart()
			}
			err := a.pass(ctx)
			all = append(all, n.facts(t, err))
		}
		for _, f := range n.open {
			require.NoError(t, f.Close())
		}
	})
	return all
}

// prepare creates the files of all containers. All lines are different, so that the test can
// identify each line.
func (n *node) prepare() error {
	for _, sub := range []string{"pods", "outside", "targets"} {
		if err := os.RemoveAll(filepath.Join(n.root, sub)); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(n.root, sub), 0o700); err != nil {
			return err
		}
	}
	for i, c := range n.w.Containers {
		log := filepath.Join(n.root, n.w.file(i))
		if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
			return err
		}
		if c.Kind == "link" {
			if err := os.Symlink(filepath.Join(n.root, fmt.Sprintf("targets/%d", i)), log); err != nil {
				return err
			}
		}
		for _, end := range c.Folders {
			if err := os.MkdirAll(log+"."+end+"/full", 0o700); err != nil {
				return err
			}
		}
		for k, end := range c.Beside {
			if err := os.WriteFile(log+"."+end, beside(end, k), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return err
		}
		n.open = append(n.open, f)
		for _, name := range c.Others {
			if err := os.WriteFile(filepath.Join(filepath.Dir(log), name), []byte("another"), 0o600); err != nil {
				return err
			}
		}
		if c.Twin != "" {
			if err := os.Link(log, log+"."+c.Twin); err != nil {
				return err
			}
		}
		if err := n.grow(i, c.Size); err != nil {
			return err
		}
	}
	return nil
}

// beside returns the content of a file next to a log.
func beside(end string, k int) []byte {
	text := fmt.Sprintf("beside %d", k)
	if !strings.HasSuffix(end, ".gz") {
		return []byte(text)
	}
	var b strings.Builder
	z, _ := gzip.NewWriterLevel(&b, gzip.HuffmanOnly) // a valid level, no error
	_, _ = z.Write([]byte(text))                      // writing to a strings.Builder never fails
	_ = z.Close()
	return []byte(b.String())
}

// grow appends to a log.
func (n *node) grow(i, size int) error {
	if size == 0 {
		return nil
	}
	n.line++
	_, err := n.open[i].WriteString(line(n.line, size))
	return err
}

func line(number, size int) string {
	return fmt.Sprintf("%-*d\n", size-1, number)
}

func (n *node) begin(t *testing.T, s Step) {
	t.Helper()
	n.step, n.calls = s, map[string]string{}
	n.offset += s.Clock
	for i, h := range s.Logs {
		require.NoError(t, n.grow(i, h.Grow))
		if h.Lost {
			err := os.Remove(filepath.Join(n.root, n.w.file(i)))
			require.True(t, err == nil || errors.Is(err, fs.ErrNotExist))
		}
		n.ended[i] = n.ended[i] || h.Ends
	}
}

// facts returns all files with their lines, and the calls.
func (n *node) facts(t *testing.T, err error) judge.Facts {
	t.Helper()
	f := judge.Facts{"error": ""}
	if err != nil && strings.Contains(err.Error(), "fault:list") {
		f["error"] = "fault:list"
	}
	for id, calls := range n.calls {
		f["container "+id+" calls"] = calls
	}
	require.NoError(t, filepath.WalkDir(n.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(n.root, path)
		f[rel] = content(path, e)
		return err
	}))
	return f
}

func content(path string, e fs.DirEntry) string {
	if e.Type()&fs.ModeSymlink != 0 {
		return "a link"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	kind := "plain"
	if z, err := gzip.NewReader(strings.NewReader(string(data))); err == nil {
		kind = "gzip"
		if data, err = io.ReadAll(z); err != nil {
			return err.Error()
		}
	}
	info, err := e.Info()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %v: %s", kind, info.Mode().Perm(), strings.Join(strings.Fields(string(data)), " "))
}

// Methods of the runtime.

func (n *node) ListContainers(context.Context, *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	if n.step.List {
		return nil, errors.New("fault:list")
	}
	for i, c := range n.w.Containers {
		state := runtimeapi.ContainerState_CONTAINER_EXITED
		if c.Running && !n.ended[i] {
			state = runtimeapi.ContainerState_CONTAINER_RUNNING
		}
		list = append(list, &runtimeapi.Container{Id: fmt.Sprint(i), State: state})
		if n.odd {
			list = append(list, list[len(list)-1], &runtimeapi.Container{State: state})
		}
	}
	return list, nil
}

func number(id string) (i int) {
	_, _ = fmt.Sscan(id, &i) // an ID is a number
	return i
}

func (n *node) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if n.step.Logs[number(id)].Mute {
		return nil, grpcstatus.Error(codes.Unknown, "fault:status")
	}
	status := &runtimeapi.ContainerStatus{Id: id, LogPath: filepath.Join(n.root, n.w.file(number(id)))}
	return &runtimeapi.ContainerStatusResponse{Status: status}, nil
}

func (n *node) ReopenContainerLog(_ context.Context, id string) error {
	n.calls[id] += "reopen;"
	i := number(id)
	switch n.step.Logs[i].Reopen {
	case "fails":
		return grpcstatus.Error(codes.Unknown, "fault:reopen")
	case "not found":
		return grpcstatus.Error(codes.NotFound, "fault:reopen")
	case "creates no file":
		return nil
	}
	f, err := os.OpenFile(filepath.Join(n.root, n.w.file(i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	err = n.open[i].Close()
	n.open[i] = f
	if n.step.Logs[i].Reopen == "fails after creating the file" {
		err = errors.Join(err, grpcstatus.Error(codes.Unknown, "fault:reopen"))
	}
	return err
}
