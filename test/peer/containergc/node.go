package containergc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A node is the runtime, the log directories and the pod workers of one side.
type node struct {
	*cluster
	root string // contains the directories pods and containers
	// shifted converts all times to those of a clock that is never set. The kubelet uses only
	// ages, and the test cannot set its clock.
	shifted bool

	mu     sync.Mutex
	calls  map[string]string // calls of this step, by object
	events []string

	// The test compares the reports of our manager with the removals.
	removed []string // IDs
	told    string   // differences between report and removals
}

func newNode(w *World, root string) (*node, error) {
	n := &node{root: root}
	n.cluster = newCluster(w, time.Now(), n)
	for _, sub := range []string{"pods", "containers"} {
		if err := os.RemoveAll(filepath.Join(root, sub)); err != nil {
			return nil, err
		}
		if err := os.Mkdir(filepath.Join(root, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if w.Folder != "" {
		if err := os.Remove(n.pods()); err != nil {
			return nil, err
		}
	}
	if w.Folder == "a file" {
		if err := os.WriteFile(n.pods(), nil, 0o600); err != nil {
			return nil, err
		}
	}
	for _, name := range w.Strays {
		if w.Folder != "" {
			break
		}
		if err := n.write("pods/" + name + "/app/0.log"); err != nil {
			return nil, err
		}
	}
	if err := n.spoilLinks(); err != nil || w.LinkFolder != "" {
		return n, err
	}
	for _, l := range w.Links {
		if err := os.Symlink(l.Target, filepath.Join(root, "containers", l.Name)); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// spoilLinks makes the directory of links faulty, as the world demands.
func (n *node) spoilLinks() error {
	folder := filepath.Join(n.root, "containers")
	switch n.w.LinkFolder {
	case "missing":
		return os.Remove(folder)
	case "a file":
		return errors.Join(os.Remove(folder), os.WriteFile(folder, nil, 0o600))
	default:
		return nil
	}
}

func (n *node) pods() string { return filepath.Join(n.root, "pods") }

// link creates a link to a file, unless its name exists.
func (n *node) link(name, file string) error {
	if n.w.LinkFolder != "" {
		return nil
	}
	err := os.Symlink(filepath.Join(n.root, file), filepath.Join(n.root, "containers", name))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// write creates a file and its parent directories.
func (n *node) write(file string) error {
	path := filepath.Join(n.root, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o600)
}

// files returns all paths below the root.
func (n *node) files() (all []string, err error) {
	err = filepath.WalkDir(n.root, func(path string, _ fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(n.root, path) // cannot fail: the path is below the root
		all = append(all, rel)
		return err
	})
	return all, err
}

// Methods of the pod workers.

func (n *node) IsPodTerminationRequested(uid types.UID) bool { return n.state(uid) != "running" }

func (n *node) ShouldPodContentBeRemoved(uid types.UID) bool {
	return n.state(uid) == "gone" || n.state(uid) == "evicted"
}

func (n *node) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return n.state(uid) == "gone" || n.state(uid) == "ended"
}

// Methods of the runtime.

func (n *node) call(object, what string) {
	n.calls[object] += what + ";"
}

// nanos returns a time as this side's runtime reports it.
func (n *node) nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if n.shifted {
		t = t.Add(-n.offset)
	}
	return t.UnixNano()
}

func (n *node) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.step.ListContainers {
		return nil, errors.New("fault:containers")
	}
	for _, c := range n.containers {
		labels, annotations := n.labels(c.Container)
		if !matches(labels, f.GetLabelSelector()) {
			continue
		}
		list = append(list, &runtimeapi.Container{
			Id: c.ID, PodSandboxId: n.boxOf(c.Container), State: c.state, CreatedAt: n.nanos(c.made), Image: &runtimeapi.ImageSpec{},
			Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: c.Attempt}, Labels: labels, Annotations: annotations,
		})
	}
	return list, nil
}

// matches reports whether labels match a selector.
func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (n *node) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) (list []*runtimeapi.PodSandbox, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.step.ListBoxes {
		return nil, errors.New("fault:sandboxes")
	}
	for _, b := range n.boxes {
		if !matches(nil, f.GetLabelSelector()) {
			continue
		}
		list = append(list, &runtimeapi.PodSandbox{
			Id: b.ID, State: b.state(), CreatedAt: n.nanos(b.made),
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: b.UID, Name: n.w.Pods[b.Pod].Name, Namespace: "default", Attempt: b.Attempt},
		})
	}
	return list, nil
}

func (n *node) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.find(id)
	switch {
	case c == nil:
		return nil, grpcstatus.Error(codes.NotFound, "fault:not found")
	case c.Mute && !c.fixed:
		return nil, grpcstatus.Error(codes.Unknown, "fault:status")
	}
	return &runtimeapi.ContainerStatusResponse{Status: n.status(c)}, nil
}

func (n *node) status(c *container) *runtimeapi.ContainerStatus {
	labels, annotations := n.labels(c.Container)
	return &runtimeapi.ContainerStatus{
		Id: c.ID, State: c.state, CreatedAt: n.nanos(c.made), FinishedAt: n.nanos(c.ended), LogPath: filepath.Join(n.root, n.w.log(c.Container)),
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: c.Attempt}, Image: &runtimeapi.ImageSpec{}, Labels: labels, Annotations: annotations,
	}
}

func (n *node) ExecSync(_ context.Context, id string, command []string, _ time.Duration) (stdout, stderr []byte, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.call("container "+id[:2], fmt.Sprint("exec ", command))
	if c := n.find(id); c != nil && c.hookFails() {
		return nil, nil, grpcstatus.Error(codes.Unknown, "fault:hook")
	}
	return nil, nil, nil
}

func (n *node) StopContainer(_ context.Context, id string, grace int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.call("container "+id[:2], fmt.Sprint("stop ", grace))
	c := n.find(id)
	switch {
	case c == nil:
		return grpcstatus.Error(codes.NotFound, "fault:not found")
	case c.StopFails && !c.fixed:
		return grpcstatus.Error(codes.Unknown, "fault:stop")
	}
	c.state, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().Add(n.offset)
	return nil
}

func (n *node) RemoveContainer(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.call("container "+id[:2], "remove")
	c := n.find(id)
	if c != nil && c.RemoveFails && !c.fixed {
		return grpcstatus.Error(codes.Unknown, "fault:remove")
	}
	n.containers = slices.DeleteFunc(n.containers, func(other *container) bool { return other == c })
	n.removed = append(n.removed, id)
	return nil
}

func (n *node) StopPodSandbox(_ context.Context, id string) error {
	return n.box(id, "stop", func(b *box) bool { return b.StopFails })
}

func (n *node) RemovePodSandbox(_ context.Context, id string) error {
	err := n.box(id, "remove", func(b *box) bool { return b.RemoveFails })
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.boxes = slices.DeleteFunc(n.boxes, func(b *box) bool { return b.ID == id })
		n.removed = append(n.removed, id)
	}
	return err
}

func (n *node) box(id, what string, fails func(*box) bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.call("sandbox "+strings.TrimPrefix(id, "box-"), what)
	for _, b := range n.boxes {
		if b.ID == id && fails(b) {
			return grpcstatus.Error(codes.Unknown, "fault:box "+what)
		}
	}
	return nil
}
