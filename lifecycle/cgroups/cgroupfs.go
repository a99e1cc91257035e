package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/podlimits"
)

// Pods manages the cgroups of pods. [Cgroupfs] implements Pods.
type Pods interface {
	// Ensure creates the pod's cgroup, sets its limits, and returns the
	// cgroup_parent of the pod's sandbox for the CRI. quotaPeriod is the period
	// of CPU quotas, from 1ms to 1s; zero disables CPU limits.
	Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (parent string, err error)
	// Update sets the limits of the pod's cgroup again during a resize.
	Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error
	// Remove removes the pod's cgroup. It returns nil if the cgroup does not
	// exist.
	Remove(ctx context.Context, uid types.UID) error
}

// ErrBusy means that a cgroup could not be removed because it still had
// processes or other cgroups. [Cgroupfs.Remove] kills the processes before it
// returns ErrBusy.
var ErrBusy = errors.New("cgroup is in use")

// errNoPod is the error for a nil pod.
var errNoPod = errors.New("cgroups: no pod")

// Version is a version of cgroups.
type Version int

// The versions.
const (
	// Detect detects the version that is mounted.
	Detect Version = iota
	// V1 is cgroup v1, which has a hierarchy for each controller.
	V1
	// V2 is cgroup v2, which has one hierarchy for all controllers.
	V2
)

// Config configures a [Cgroupfs].
type Config struct {
	// Root is the mount point of cgroups. Default /sys/fs/cgroup.
	Root string
	// Version is the version of cgroups that is mounted at Root. Default
	// [Detect].
	Version Version
	// Parent is the cgroup that contains kubepods, as an absolute path from the
	// root cgroup. Cgroupfs creates the parent if it is missing. Default: the
	// root cgroup.
	Parent string
	// Allocatable returns the total resources for all pods. Ensure and
	// UpdateQoS set the memory limit and the CPU shares of the cgroup kubepods
	// to the memory and the CPU in this list. They do so once in each process,
	// and again whenever they have created this cgroup again. If the limits of
	// an existing cgroup can't be set, pods start without them, and the next
	// call tries again. A resource that is zero or missing is not limited. If
	// Allocatable is nil, no resource is limited.
	Allocatable func() corev1.ResourceList
	// Limited is called after each attempt to set the limits from Allocatable.
	// The argument cgroup is the path of kubepods, and err is nil if the
	// attempt succeeded. Limited must be safe for concurrent use. Optional.
	Limited func(cgroup string, err error)
	// PidsPerPod is the maximum number of processes and threads of a pod. Zero:
	// no limit.
	PidsPerPod int64
	// HugePageSizes are the huge page sizes of the node, in bytes. A pod that
	// requests no huge pages of a size can't use pages of that size.
	HugePageSizes []int64
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	for field, path := range map[string]string{"Root": c.Root, "Parent": c.Parent} {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
			errs = append(errs, fmt.Errorf("field %s: %q is not a clean absolute path", field, path))
		}
	}
	if c.Version < Detect || c.Version > V2 {
		errs = append(errs, fmt.Errorf("field Version: %d is not a known version", c.Version))
	}
	if c.PidsPerPod < 0 {
		errs = append(errs, fmt.Errorf("field PidsPerPod: %d is negative", c.PidsPerPod))
	}
	return errors.Join(errs...)
}

// Cgroupfs manages the cgroups of pods through the file system.
type Cgroupfs struct {
	cfg   Config
	rmdir func(string) error
	// limited reports whether this process has set the limits of the cgroup
	// kubepods.
	limited atomic.Bool
}

var _ Pods = (*Cgroupfs)(nil)

// New returns a Cgroupfs. The error reports every problem with cfg. New creates
// no cgroup.
func New(cfg Config) (*Cgroupfs, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cgroups: invalid config: %w", err)
	}
	if cfg.Root == "" {
		cfg.Root = "/sys/fs/cgroup"
	}
	return &Cgroupfs{cfg: cfg, rmdir: os.Remove}, nil
}

// Ensure implements [Pods]. If the cgroup exists, Ensure sets its limits again.
// It returns an error if the pod's UID is not valid in the name of a directory.
func (c *Cgroupfs) Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (string, error) {
	if pod == nil {
		return "", errNoPod
	}
	name := c.below(PodName(pod))
	if err := c.ensure(ctx, pod, name, quotaPeriod); err != nil {
		return "", fmt.Errorf("create cgroup of pod %s: %w", pod.UID, err)
	}
	return name.Cgroupfs(), nil
}

func (c *Cgroupfs) ensure(ctx context.Context, pod *corev1.Pod, name Name, quotaPeriod time.Duration) error {
	if err := check(pod.UID); err != nil {
		return err
	}
	tree, err := c.tree()
	if err != nil {
		return err
	}
	if _, err := c.ensureQoS(ctx, tree); err != nil {
		return err
	}
	made, err := tree.make(name)
	if err == nil {
		err = errors.Join(tree.limit(name, c.limits(pod, quotaPeriod)), ctx.Err())
	}
	return c.undo(err, made)
}

// If err is not nil, undo removes the given directories, which are new. If the
// directory of kubepods or of a QoS class remained, the next attempt would find
// the cgroup, and might not set its limits or shares. undo does not remove a
// new directory in which another process has created a directory.
func (c *Cgroupfs) undo(err error, made []string) error {
	if err == nil {
		return nil
	}
	errs := []error{err}
	for _, dir := range made {
		errs = append(errs, c.removeOne(dir))
	}
	return errors.Join(errs...)
}

// Update implements [Pods]. If the pod's limits shrink, the caller must set the
// limits of the containers before it calls Update. If the pod's limits grow,
// the caller must call Update first.
func (c *Cgroupfs) Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error {
	if pod == nil {
		return errNoPod
	}
	tree, err := c.tree()
	if err == nil {
		err = errors.Join(check(pod.UID), ctx.Err())
	}
	if err == nil {
		err = tree.limit(c.below(PodName(pod)), c.limits(pod, quotaPeriod))
	}
	if err != nil {
		return fmt.Errorf("set limits of pod %s: %w", pod.UID, err)
	}
	return nil
}

// Remove implements [Pods]. It searches the cgroups of all QoS classes for the
// pod's cgroup, because the caller may not know the pod's spec any more. It
// also removes cgroups that runtimes left below the pod's cgroup. If processes
// are left in a cgroup, Remove kills them and returns [ErrBusy], because
// processes take a moment to exit. The caller must then call Remove again. Do
// not call Remove while containers of the pod may still be running.
func (c *Cgroupfs) Remove(ctx context.Context, uid types.UID) error {
	tree, err := c.tree()
	if err == nil {
		err = errors.Join(check(uid), ctx.Err())
	}
	if err == nil {
		for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
			err = errors.Join(err, c.remove(tree, c.below(podName(class, uid))))
		}
	}
	if err != nil {
		return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
	}
	return nil
}

// UpdateQoS sets the CPU shares of the cgroups of QoS classes. The cgroup of
// Burstable gets the shares for the sum of the CPU requests of its pods. The
// cgroup of BestEffort gets the minimum. Call UpdateQoS with all running pods
// whenever the running pods or their requests change. The kubelet also sets
// these shares every minute. If the limits from Config.Allocatable can't be set
// for an existing cgroup kubepods, UpdateQoS sets the shares nevertheless, and
// then returns an error.
func (c *Cgroupfs) UpdateQoS(ctx context.Context, pods []*corev1.Pod) error {
	var unlimited error
	tree, err := c.tree()
	if err == nil {
		unlimited, err = c.ensureQoS(ctx, tree)
	}
	if err == nil {
		err = tree.shares(c.below(QoSName(corev1.PodQOSBurstable)), burstableShares(pods))
	}
	if err == nil {
		err = tree.shares(c.below(QoSName(corev1.PodQOSBestEffort)), podlimits.MinShares)
	}
	if err = errors.Join(unlimited, err); err != nil {
		return fmt.Errorf("set CPU shares of the QoS classes: %w", err)
	}
	return nil
}

// ensureQoS creates the cgroups above the pods' cgroups. If the limits of an
// existing cgroup kubepods can't be set, the first result is the cause.
func (c *Cgroupfs) ensureQoS(ctx context.Context, tree tree) (unlimited, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if unlimited, err = c.ensureKubepods(tree); err != nil {
		return nil, err
	}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		name := c.below(QoSName(class))
		made, err := tree.make(name)
		if err == nil && len(made) > 0 {
			err = tree.shares(name, podlimits.MinShares)
		}
		if err = c.undo(err, made); err != nil {
			return nil, err
		}
	}
	return unlimited, nil
}

// ensureKubepods creates the cgroup kubepods, and sets the limits of a new
// cgroup. It also sets the limits of an existing cgroup once per process,
// because an earlier agent may have had other limits or may have been
// interrupted. After that, ensureKubepods does not change the limits, so an
// administrator may change them. If the limits of an existing cgroup can't be
// set, the first result is the cause, and the next call tries again. On
// cgroup v1 this happens if the pods use more memory than the new limit.
func (c *Cgroupfs) ensureKubepods(tree tree) (unlimited, err error) {
	name := c.below(Name{kubepods})
	made, err := tree.make(name)
	var allocatable corev1.ResourceList
	if c.cfg.Allocatable != nil && (len(made) > 0 || !c.limited.Load()) {
		allocatable = c.cfg.Allocatable()
	}
	memory, milli := allocatable.Memory().Value(), allocatable.Cpu().MilliValue()
	if err != nil || len(made) == 0 && (c.limited.Load() || memory <= 0 && milli <= 0) {
		return nil, c.undo(err, made)
	}
	limits := Limits{CPUShares: podlimits.SharesPerCore, MemoryBytes: memory}
	if milli > 0 {
		limits.CPUShares = podlimits.Shares(milli)
	}
	err = tree.limit(name, limits)
	if c.cfg.Limited != nil && (memory > 0 || milli > 0) {
		c.cfg.Limited(name.Cgroupfs(), err)
	}
	if err != nil && len(made) == 0 {
		return err, nil
	}
	if err := c.undo(err, made); err != nil {
		return nil, err
	}
	c.limited.Store(c.cfg.Allocatable == nil || memory > 0 || milli > 0) // false while Allocatable returns no resources yet
	return nil, nil
}

func (c *Cgroupfs) limits(pod *corev1.Pod, quotaPeriod time.Duration) Limits {
	l := PodLimits(pod, quotaPeriod)
	l.Pids = c.cfg.PidsPerPod
	for _, size := range c.cfg.HugePageSizes {
		if name := PageSize(size); l.HugePages[name] == 0 {
			l.HugePages[name] = 0
		}
	}
	return l
}

func (c *Cgroupfs) below(name Name) Name {
	var parent Name
	for dir := c.cfg.Parent; dir != "" && dir != "/"; dir = filepath.Dir(dir) {
		parent = append(Name{filepath.Base(dir)}, parent...)
	}
	return append(parent, name...)
}

func (c *Cgroupfs) remove(tree tree, name Name) error {
	var errs []error
	for _, root := range tree.roots() {
		errs = append(errs, c.removeTree(filepath.Join(append([]string{root}, name...)...)))
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup and all cgroups below it. The kernel removes the
// files of a cgroup together with the cgroup.
func (c *Cgroupfs) removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := c.removeTree(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	err = c.removeOne(path)
	if errors.Is(err, ErrBusy) {
		err = errors.Join(err, kill(path))
	}
	return err
}

// kill kills the processes in a cgroup. A killed process leaves the cgroup a
// moment later, when it exits.
func kill(path string) error {
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || isRemoved(err) {
		return nil
	}
	errs := []error{err}
	for text := range strings.FieldsSeq(string(procs)) {
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 { // the kernel writes 0 for a process of another PID namespace
			continue
		}
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Kill()
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("kill process %d in %s: %w", pid, path, err))
		}
	}
	return errors.Join(errs...)
}

// removeOne removes a cgroup that has no children.
func (c *Cgroupfs) removeOne(path string) error {
	err := c.rmdir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case isBusy(err):
		return fmt.Errorf("%w: %s", ErrBusy, path)
	}
	return err
}

// check returns an error if the UID is empty or can't be part of the name of a
// single directory, for example because it contains a slash.
func check(uid types.UID) error {
	if name := podPrefix + string(uid); uid == "" || filepath.Base(name) != name || !filepath.IsLocal(name) {
		return fmt.Errorf("UID %q is not a valid name of a cgroup", uid)
	}
	return nil
}

// tree accesses the files of one version of cgroups.
type tree interface {
	// roots returns the root directories of the hierarchies.
	roots() []string
	// make creates a cgroup and its missing parents. On cgroup v1 it does so in
	// every hierarchy that has a controller. The first result contains the new
	// directories of the cgroup itself. It contains a new directory of a parent
	// only if make fails after it has created this directory. The first result
	// is valid even if err is not nil.
	make(name Name) (made []string, err error)
	// limit sets all limits of a cgroup.
	limit(name Name, l Limits) error
	// shares sets the CPU shares of a cgroup.
	shares(name Name, shares int64) error
}

func (c *Cgroupfs) tree() (tree, error) {
	version := c.cfg.Version
	if version == Detect {
		version = V1
		if _, err := os.Stat(filepath.Join(c.cfg.Root, "cgroup.controllers")); err == nil {
			version = V2
		}
	}
	if version == V2 {
		return v2(c.cfg.Root), nil
	}
	hierarchies, err := findV1(c.cfg.Root)
	if err != nil {
		return nil, err
	}
	for _, needed := range []string{"cpu", "memory"} {
		if hierarchies[needed] == "" {
			return nil, fmt.Errorf("no cgroup v1 hierarchy of controller %s in %s", needed, c.cfg.Root)
		}
	}
	return hierarchies, nil
}

// mkdirs creates a directory and its parents below root, from the top. It calls
// ready for each directory before it creates the next directory, and stops if
// ready fails. It returns the directory of the last call of ready if this
// directory is new, and nothing if it can't create a directory.
func mkdirs(root string, name Name, ready func(dir string) error) (made []string, err error) {
	dir := root
	for _, part := range name {
		dir = filepath.Join(dir, part)
		made = nil
		err := os.Mkdir(dir, 0o755)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err == nil {
			made = []string{dir}
		}
		if err := ready(dir); err != nil {
			return made, err
		}
	}
	return made, nil
}

func write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}

func sortedSizes(pages map[string]int64) []string {
	var sizes []string
	for size := range pages {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	return sizes
}
