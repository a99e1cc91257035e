package imagegc_test

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// Any CRI client can be used.
var (
	_ imagegc.ImageService = cri.ImageManagerService(nil)
	_ imagegc.ImageFsInfo  = cri.ImageManagerService(nil)
	_ imagegc.Runtime      = cri.RuntimeService(nil)
)

// A Manager implements the interfaces that other packages declare for it.
var (
	_ interface {
		Acquire(ref, owner string, ttl time.Duration) (release func())
	} = (*imagegc.Manager)(nil)
	_ interface {
		DeleteUnusedImages(ctx context.Context) error
	} = (*imagegc.Manager)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mib = 1 << 20
	gib = 1 << 30
)

// nodeFS is the disk of a fake node.
type nodeFS struct {
	node   *fakecri.Node
	err    error
	change func(imagegc.Usage) imagegc.Usage
	calls  int
}

func (f *nodeFS) Usage(context.Context) (imagegc.Usage, error) {
	f.calls++
	u := f.node.DiskUsage()
	usage := imagegc.Usage{CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes}
	if f.change != nil {
		usage = f.change(usage)
	}
	return usage, f.err
}

// recorder records events.
type recorder []string

func (r *recorder) Eventf(_ runtime.Object, kind, reason, format string, args ...any) {
	*r = append(*r, kind+" "+reason+" "+fmt.Sprintf(format, args...))
}

// rig is a fake node with a Manager, on a fake clock.
type rig struct {
	*imagegc.Manager
	t      *testing.T
	node   *fakecri.Node
	clock  *testingclock.FakeClock
	fs     *nodeFS
	events recorder
	hooks  [][]string
	last   imagegc.Result // result of the last pass
	pods   int
}

// newRig makes a node of 100 GiB with images of the given names. The last word is the size
// of the image: "a:1 2GiB". A word "pinned" pins it.
func newRig(t *testing.T, images []string, options ...func(*imagegc.Config)) *rig {
	t.Helper()
	r := &rig{t: t, clock: testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	cfg := fakecri.Config{Clock: r.clock, Record: true, PullAny: true}
	for _, line := range images {
		cfg.Images = append(cfg.Images, parseImage(t, line))
	}
	var err error
	r.node, err = fakecri.New(cfg)
	require.NoError(t, err)
	r.fs = &nodeFS{node: r.node}
	r.Manager = r.manager(options...)
	return r
}

// manager makes another Manager for the node.
func (r *rig) manager(options ...func(*imagegc.Config)) *imagegc.Manager {
	cfg := imagegc.Config{
		Images: r.node, Runtime: r.node, FS: r.fs, Clock: r.clock,
		Events: &r.events, Node: &corev1.Node{},
		AfterGC:  func(_ context.Context, remaining []string, _ time.Time) { r.hooks = append(r.hooks, remaining) },
		Observer: imagegc.Observer{Collected: func(res imagegc.Result, _ error) { r.last = res }},
	}
	for _, option := range options {
		option(&cfg)
	}
	m, err := imagegc.New(cfg)
	require.NoError(r.t, err)
	return m
}

func parseImage(tb testing.TB, line string) fakecri.Image {
	tb.Helper()
	img := fakecri.Image{}
	for i, word := range strings.Fields(line) {
		var n uint64
		switch {
		case i == 0:
			img.Name = word
		case word == "pinned":
			img.Pinned = true
		case strings.HasPrefix(word, "tag="):
			img.Tags = append(img.Tags, word[len("tag="):])
		case strings.HasSuffix(word, "GiB"):
			_, err := fmt.Sscanf(word, "%dGiB", &n)
			require.NoError(tb, err)
			img.SizeBytes = n * gib
		default:
			_, err := fmt.Sscanf(word, "%dMiB", &n)
			require.NoError(tb, err)
			img.SizeBytes = n * mib
		}
	}
	return img
}

// id returns the id of an image.
func (r *rig) id(name string) string {
	r.t.Helper()
	status, err := r.node.ImageStatus(r.t.Context(), &runtimeapi.ImageSpec{Image: name}, false)
	require.NoError(r.t, err)
	require.NotNil(r.t, status.GetImage(), name)
	return status.GetImage().GetId()
}

// create makes a container of an image, with other images as volumes, and returns the ids
// of the container and of its sandbox.
func (r *rig) create(image string, volumes ...string) (container, sandbox string) {
	r.t.Helper()
	r.pods++
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{
		Name: fmt.Sprint("pod", r.pods), Namespace: "default", Uid: fmt.Sprint("uid", r.pods),
	}}
	app := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: image},
	}
	for _, v := range volumes {
		app.Mounts = append(app.Mounts, &runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: v}})
	}
	sandbox, err := r.node.RunPodSandbox(r.t.Context(), pod, "")
	require.NoError(r.t, err)
	container, err = r.node.CreateContainer(r.t.Context(), sandbox, app, pod)
	require.NoError(r.t, err)
	return container, sandbox
}

// use runs a container of an image while the Manager detects use once.
func (r *rig) use(image string) {
	r.t.Helper()
	_, sandbox := r.create(image)
	require.NoError(r.t, r.Detect(r.t.Context()))
	require.NoError(r.t, r.node.RemovePodSandbox(r.t.Context(), sandbox))
}

// there returns the short names of the existing images, sorted.
func (r *rig) there() string {
	r.t.Helper()
	images, err := r.node.ListImages(r.t.Context(), nil)
	require.NoError(r.t, err)
	var names []string
	for _, img := range images {
		names = append(names, shortName(img.RepoTags))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func shortName(tags []string) string {
	if len(tags) == 0 {
		return "untagged"
	}
	return strings.TrimPrefix(tags[0], "docker.io/library/")
}

// fill fills the disk to the given percentage, including the images.
func (r *rig) fill(percent uint64) {
	r.t.Helper()
	require.NoError(r.t, r.node.FillDisk(0, 0))
	u := r.node.DiskUsage()
	require.NoError(r.t, r.node.FillDisk(u.CapacityBytes*percent/100-u.UsedBytes, 0))
}

// calls counts the calls of a method so far.
func (r *rig) calls(method string) int {
	n := 0
	for _, c := range r.node.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

// old advances the clock by more than MinAge.
func (r *rig) old() {
	r.t.Helper()
	require.NoError(r.t, r.Detect(r.t.Context()))
	r.clock.Step(time.Hour)
}

func (r *rig) collect() error {
	_, err := r.Collect(r.t.Context())
	return err
}

func removed(res imagegc.Result) (names []string) {
	for _, r := range res.Removed {
		names = append(names, shortName(r.Image.Tags)+" "+string(r.Reason))
	}
	return names
}

// byName returns preferences by patterns of short names.
func byName(keep, prefer []string) func(imagegc.Image) imagegc.Preference {
	return func(i imagegc.Image) imagegc.Preference {
		matches := func(pattern string) bool {
			ok, err := path.Match(pattern, shortName(i.Tags))
			return err == nil && ok
		}
		switch {
		case slices.ContainsFunc(keep, matches):
			return imagegc.Keep
		case slices.ContainsFunc(prefer, matches):
			return imagegc.Prefer
		default:
			return imagegc.Default
		}
	}
}
