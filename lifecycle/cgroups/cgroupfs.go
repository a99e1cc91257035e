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

// Pods keeps cgroups of pods. [Cgroupfs] is one.
type Pods interface {
	// Ensure makes the pod's cgroup, with its limits, and returns what the CRI
	// takes as cgroup_parent of its sandbox. quotaPeriod is the period of CPU quotas,
	// from 1ms to 1s; zero: CPU limits have no effect.
	Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (parent string, err error)
	// Update sets the limits again, during a resize.
	Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error
	// Remove removes the pod's cgroup. One that is not there is fine.
	Remove(ctx context.Context, uid types.UID) error
}

// ErrBusy says that processes were still in a cgroup that is to be removed. They are
// killed.
var ErrBusy = errors.New("cgroup is in use")

// errNoPod says that there is no pod to make a cgroup for.
var errNoPod = errors.New("cgroups: no pod")

// Version is a kind of cgroups.
type Version int

// The versions; zero is for whoever asks to find out.
const (
	// Detect looks which one is mounted.
	Detect Version = iota
	// V1 has a hierarchy for each controller.
	V1
	// V2 has one for all.
	V2
)

// Config configures a [Cgroupfs].
type Config struct {
	// Root is where cgroups are mounted. Default /sys/fs/cgroup.
	Root string
	// Version is what is mounted there. Default: what it looks like.
	Version Version
	// Parent is the cgroup below which kubepods goes, as an absolute path. It is
	// made if it is missing. Default the root.
	Parent string
	// Allocatable returns what all pods together may use. It is called until the cgroup of
	// all pods has these limits. A resource that is zero or missing is not limited.
	// Optional; without it nothing is.
	Allocatable func() corev1.ResourceList
	// PidsPerPod is how many processes and threads a pod may have. Zero: no limit.
	PidsPerPod int64
	// HugePageSizes are the sizes that the node has, in bytes: pods that ask for
	// none get none.
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
		errs = append(errs, fmt.Errorf("field Version: %d is none", c.Version))
	}
	if c.PidsPerPod < 0 {
		errs = append(errs, fmt.Errorf("field PidsPerPod: %d is negative", c.PidsPerPod))
	}
	return errors.Join(errs...)
}

// Cgroupfs keeps cgroups of pods through the file system.
type Cgroupfs struct {
	cfg   Config
	rmdir func(string) error
	// limited says that the limits of all pods together were set.
	limited atomic.Bool
}

var _ Pods = (*Cgroupfs)(nil)

// New returns a Cgroupfs, or an error that names every problem with cfg. It makes
// nothing yet.
func New(cfg Config) (*Cgroupfs, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cgroups: invalid config: %w", err)
	}
	if cfg.Root == "" {
		cfg.Root = "/sys/fs/cgroup"
	}
	return &Cgroupfs{cfg: cfg, rmdir: os.Remove}, nil
}

// Ensure implements [Pods]. What exists is kept, and its limits are set again. A
// UID that is no name of a folder is an error.
func (c *Cgroupfs) Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (string, error) {
	if pod == nil {
		return "", errNoPod
	}
	name := c.below(PodName(pod))
	if err := c.ensure(ctx, pod, name, quotaPeriod); err != nil {
		return "", fmt.Errorf("make cgroup of pod %s: %w", pod.UID, err)
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
	if err := c.ensureQoS(ctx, tree); err != nil {
		return err
	}
	made, err := tree.make(name)
	if err == nil {
		err = errors.Join(tree.limit(name, c.limits(pod, quotaPeriod)), ctx.Err())
	}
	return c.undo(err, made)
}

// undo takes new cgroups away that could not be limited: the next attempt would
// take them for ones that are. What was there in another hierarchy, or came below
// them meanwhile, stays.
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

// Update implements [Pods]. Of limits that become smaller those of the containers
// must be set before, of ones that become larger after.
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

// Remove implements [Pods]. It looks below each class, because the pod's spec may
// be gone, and takes away cgroups that runtimes left below the pod's. It kills the
// processes that it finds there and returns [ErrBusy], because they take a moment to
// leave: call it again. So it must not be called for a pod that may run.
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

// UpdateQoS gives the classes their parts of the cpu: Burstable what its pods
// asked for together, BestEffort the least. It is to be called with all pods that
// run whenever these change; the kubelet does so every minute, too.
func (c *Cgroupfs) UpdateQoS(ctx context.Context, pods []*corev1.Pod) error {
	tree, err := c.tree()
	if err == nil {
		err = c.ensureQoS(ctx, tree)
	}
	if err == nil {
		err = tree.shares(c.below(QoSName(corev1.PodQOSBurstable)), burstableShares(pods))
	}
	if err == nil {
		err = tree.shares(c.below(QoSName(corev1.PodQOSBestEffort)), podlimits.MinShares)
	}
	if err != nil {
		return fmt.Errorf("set shares of classes: %w", err)
	}
	return nil
}

// ensureQoS makes the cgroups above those of pods.
func (c *Cgroupfs) ensureQoS(ctx context.Context, tree tree) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.ensureKubepods(tree); err != nil {
		return err
	}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		name := c.below(QoSName(class))
		made, err := tree.make(name)
		if err == nil && len(made) > 0 {
			err = tree.shares(name, podlimits.MinShares)
		}
		if err = c.undo(err, made); err != nil {
			return err
		}
	}
	return nil
}

// ensureKubepods makes the cgroup of all pods and limits it: when it is new, and
// once in our life, because an agent before us may have had other limits, or ended
// in between. From then on they are the administrator's to change.
func (c *Cgroupfs) ensureKubepods(tree tree) error {
	name := c.below(Name{kubepods})
	made, err := tree.make(name)
	var allocatable corev1.ResourceList
	if c.cfg.Allocatable != nil && (len(made) > 0 || !c.limited.Load()) {
		allocatable = c.cfg.Allocatable()
	}
	memory, milli := allocatable.Memory().Value(), allocatable.Cpu().MilliValue()
	if err != nil || len(made) == 0 && (c.limited.Load() || memory <= 0 && milli <= 0) {
		return c.undo(err, made)
	}
	limits := Limits{CPUShares: podlimits.SharesPerCore, MemoryBytes: memory}
	if milli > 0 {
		limits.CPUShares = podlimits.Shares(milli)
	}
	if err := c.undo(tree.limit(name, limits), made); err != nil {
		return err
	}
	c.limited.Store(true)
	return nil
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

// removeTree removes a cgroup and those below it. Their files go with them.
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

// kill ends the processes of a cgroup. They take a moment to leave it.
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

// removeOne removes a cgroup that has none below it.
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

// check refuses a UID that is not the name of one folder.
func check(uid types.UID) error {
	if name := podPrefix + string(uid); uid == "" || filepath.Base(name) != name || !filepath.IsLocal(name) {
		return fmt.Errorf("UID %q is no name of a cgroup", uid)
	}
	return nil
}

// tree is the files of one version of cgroups.
type tree interface {
	// roots are the folders of the hierarchies.
	roots() []string
	// make makes a cgroup, and what is missing above it, in every hierarchy, and
	// returns the folders of those that were not there; with an error, too.
	make(name Name) (made []string, err error)
	// limit sets all limits of a cgroup.
	limit(name Name, l Limits) error
	// shares sets its part of the cpu.
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
			return nil, fmt.Errorf("no hierarchy of controller %s at %s", needed, c.cfg.Root)
		}
	}
	return hierarchies, nil
}

// mkdirs makes a folder and those above it below root, from the top, and calls
// each of them ready before the next. It returns the last one if that is new.
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
