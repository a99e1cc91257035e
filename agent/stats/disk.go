package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// walkSlice is the maximum number of files of one pod that a refresh examines before it continues
// with the next pod. So a pod with millions of files does not delay other pods.
const walkSlice = 4096

// diskKind is the purpose of a target.
type diskKind int

const (
	volumeDisk diskKind = iota // named after the volume
	logDisk                    // named after the container
	otherDisk                  // named after its path
)

// diskTarget is a folder or file of a pod that is measured separately.
type diskTarget struct {
	kind diskKind
	name string
	path string
}

// diskFigure is the disk usage of a target.
type diskFigure struct {
	diskTarget
	eviction.DiskUsage
}

// podDisk is the measured disk usage of a pod. It is immutable.
type podDisk struct {
	figures []diskFigure
	at      time.Time // end of the last measurement without missed targets; zero if never
}

// podWalk measures the targets of one pod one after another.
type podWalk struct {
	uid     types.UID
	logs    []string // the pod's log folders
	mapped  bool     // the pod has its own user namespace
	targets []diskTarget
	done    []diskFigure
	missed  []string // paths that could not be listed or measured
	current *walk    // walk of the first unfinished target, nil if not started
	listed  bool
}

func (w *podWalk) close() {
	if w.current != nil {
		w.current.close()
	}
}

// localPlugins returns the volume types whose data is on the node. The data of other volumes
// may be remote, and even a stat call on a remote filesystem may hang.
func localPlugins() []string {
	return []string{
		"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~git-repo",
		"kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api",
	}
}

// diskTargets returns the pod's volumes of the types in localPlugins and the other files and
// folders in the pod's folder. It also returns the files and folders in the log folders. It skips
// volumes of all other types. It also skips folders such as volume-subpaths, because their data
// belongs to a volume. Separately, it returns the folders that could not be listed, and the joined
// errors.
func diskTargets(pod string, logs []string) (targets []diskTarget, missed []string, err error) {
	var errs []error
	list := func(dir string) []fs.DirEntry {
		all, err := entries(dir)
		if err != nil {
			missed, errs = append(missed, dir), append(errs, err)
		}
		return all
	}
	for _, plugin := range localPlugins() {
		dir := filepath.Join(pod, "volumes", plugin)
		for _, v := range list(dir) {
			targets = append(targets, diskTarget{volumeDisk, v.Name(), filepath.Join(dir, v.Name())})
		}
	}
	for _, e := range list(pod) {
		if !strings.HasPrefix(e.Name(), "volume") {
			path := filepath.Join(pod, e.Name())
			targets = append(targets, diskTarget{otherDisk, path, path})
		}
	}
	for _, dir := range logs {
		for _, e := range list(dir) {
			path := filepath.Join(dir, e.Name())
			if e.IsDir() {
				targets = append(targets, diskTarget{logDisk, e.Name(), path})
			} else {
				targets = append(targets, diskTarget{otherDisk, path, path})
			}
		}
	}
	return targets, missed, errors.Join(errs...)
}

// entries lists a folder. If the folder does not exist, entries returns no entries and no
// error. If the list fails, entries returns no entries, because an incomplete list would be
// misleading.
func entries(dir string) ([]fs.DirEntry, error) {
	all, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return all, nil
}

// list finds the targets and records their quota projects. The first call of advance for a
// pod only calls list, so that a refresh records the projects of all newly queued pods before
// it measures any of them.
func (w *podWalk) list(cfg Config, q *quotas) (err error) {
	w.listed = true
	dir := filepath.Join(cfg.NodePath, "pods", string(w.uid))
	// The kubelet and package podrunner store the IDs of a pod's user namespace in this file.
	// Containers can't write to the pod's folder, so they can't create the file.
	w.mapped = exists(filepath.Join(dir, "userns"))
	w.targets, w.missed, err = diskTargets(dir, w.logs)
	for _, t := range w.targets {
		q.record(w.uid, t.path)
	}
	return err
}

// trustsQuota reports whether the quota of a target can be trusted. The owner of a file can
// change the file's project, but a process in a user namespace can't. Therefore quotas of
// volumes are only trusted for pods with their own user namespace. The kubelet also sets such
// quotas only for these pods (KEP-1029). Quotas of logs are always trusted, because the runtime
// owns the log files.
func (w *podWalk) trustsQuota(t diskTarget) bool {
	return t.kind == logDisk || t.kind == volumeDisk && w.mapped
}

// advance continues the pod's measurement: it examines about n files. It returns the number of
// examined files, and whether all targets are measured. If a target fails, advance records the
// target as missed, continues with the other targets, and returns the joined errors at the end.
// If ctx is done, advance returns the error of ctx.
func (w *podWalk) advance(ctx context.Context, cfg Config, q *quotas, n int) (examined int, done bool, err error) {
	if !w.listed {
		err = w.list(cfg, q)
		return 1, len(w.targets) == 0, err
	}
	var errs []error
	for examined < n && len(w.done) < len(w.targets) {
		target := w.targets[len(w.done)]
		if w.current == nil {
			examined++
			if w.trustsQuota(target) {
				if u, ok := q.usage(target.path, cfg.Clock.Now()); ok {
					w.done = append(w.done, diskFigure{target, u})
					continue
				}
			}
			figure, current, err := begin(target, cfg.Clock.Now())
			if current == nil {
				errs = append(errs, w.finish(figure, err))
				continue
			}
			w.current = current
		}
		more, over, err := w.current.advance(ctx, n-examined)
		examined += more
		if over {
			errs = append(errs, w.finish(diskFigure{target, usageOf(w.current, cfg.Clock.Now())}, err))
			w.current = nil
		} else if err != nil { // ctx is done
			return examined, false, err
		}
	}
	return examined, len(w.done) == len(w.targets), errors.Join(errs...)
}

// finish records the figure of a target. If err is not nil, finish also records the target as
// missed and returns err with the path.
func (w *podWalk) finish(figure diskFigure, err error) error {
	w.done = append(w.done, figure)
	if err == nil {
		return nil
	}
	w.missed = append(w.missed, figure.path)
	return fmt.Errorf("measure disk usage of %s: %w", figure.path, err)
}

// begin starts the walk of a target. The walk is nil after an error, or if no walk is needed: the
// usage of an in-memory filesystem comes from statfs, and a removed target has no usage.
func begin(target diskTarget, now time.Time) (diskFigure, *walk, error) {
	figure := diskFigure{diskTarget: target}
	// Check only volumes: isMemory and statfs follow links, and a container that can write to
	// a log folder could create a link to another filesystem there.
	if target.kind == volumeDisk && isMemory(target.path) {
		u, err := statfs(target.path)
		if err == nil {
			figure.Bytes = usage(u.used, now)
			figure.Inodes = usage(u.inodes.minus(u.inodesFree), now)
		}
		return figure, nil, err
	}
	w, err := newWalk(target.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return figure, w, err
}

func usageOf(w *walk, at time.Time) eviction.DiskUsage {
	return eviction.DiskUsage{Bytes: usage(known(w.bytes), at), Inodes: usage(known(w.found()), at)}
}

// usage returns v as a measurement at the given time. The result is unknown if v is unknown.
func usage(v value, at time.Time) eviction.Usage {
	if !v.ok {
		return eviction.Usage{}
	}
	return eviction.Usage{Value: toInt(v.n), Time: at}
}

// figures returns the newest figure of each target. If the target was missed or is not measured
// yet, this is the previous figure. The count of a running walk is a lower bound. If the count is
// larger than the previous figure, figures returns the count. So a pod that fills the disk is found
// before its walk ends.
func (w *podWalk) figures(before podDisk, now time.Time) podDisk {
	var all []diskFigure
	for _, f := range before.figures {
		if slices.Contains(w.missed, filepath.Dir(f.path)) {
			all = append(all, f)
		}
	}
	for _, f := range w.done {
		if slices.Contains(w.missed, f.path) {
			f.DiskUsage = before.usage(f.diskTarget)
		}
		all = append(all, f)
	}
	for i, target := range w.targets[len(w.done):] {
		figure := diskFigure{target, before.usage(target)}
		if i == 0 && w.current != nil {
			soFar := usageOf(w.current, now)
			figure.Bytes = larger(figure.Bytes, soFar.Bytes)
			figure.Inodes = larger(figure.Inodes, soFar.Inodes)
		}
		all = append(all, figure)
	}
	at := before.at
	if len(w.done) == len(w.targets) && len(w.missed) == 0 {
		at = now
	}
	return podDisk{all, at}
}

// usage returns the measured usage of a target, which is unknown if d has no figure for the
// target.
func (d podDisk) usage(target diskTarget) eviction.DiskUsage {
	for _, f := range d.figures {
		if f.diskTarget == target {
			return f.DiskUsage
		}
	}
	return eviction.DiskUsage{}
}

func larger(before, soFar eviction.Usage) eviction.Usage {
	if before.Known() && before.Value >= soFar.Value {
		return before
	}
	return soFar
}

// diskGrowthBytes and diskGrowthInodes are the growth of the filesystems' usage at which all
// pods are measured again.
const (
	diskGrowthBytes  = 16 << 20
	diskGrowthInodes = 1000
)

// diskLevel is the lowest usage of the filesystems of volumes and logs since the last detected
// growth.
type diskLevel struct{ bytes, inodes value }

// grown reports whether the usage has grown by at least diskGrowthBytes or diskGrowthInodes
// since the lowest level, and updates the level.
func (l *diskLevel) grown(bytes, inodes value) bool {
	if l.bytes.plus(known(diskGrowthBytes)).n <= bytes.n && l.bytes.ok && bytes.ok ||
		l.inodes.plus(known(diskGrowthInodes)).n <= inodes.n && l.inodes.ok && inodes.ok {
		*l = diskLevel{bytes, inodes}
		return true
	}
	*l = diskLevel{bytes.least(l.bytes), inodes.least(l.inodes)}
	return false
}

// diskGrown reports whether the usage of the filesystems of volumes and logs has grown. The
// usage of a filesystem that can't be measured counts as 0.
func (p *Provider) diskGrown() bool {
	volumes, _ := statfs(p.cfg.NodePath)
	logs, _ := statfs(p.cfg.LogPath)
	zero := known(0)
	return p.level.grown(
		volumes.used.or(zero).plus(logs.used.or(zero)),
		volumes.inodes.minus(volumes.inodesFree).or(zero).plus(logs.inodes.minus(logs.inodesFree).or(zero)),
	)
}

// refreshDisk adds the due pods to the queue and measures the queued pods until the queue is
// empty, WalkEntries files were examined, or ctx is done.
func (p *Provider) refreshDisk(ctx context.Context, r *Refreshed) error {
	errs := []error{p.folders.list(p.cfg)}
	pods := p.folders.byPod(p.cfg)
	p.queue = enqueue(p.queue, pods, p.dueDisks(pods))
	p.quotas.measured = 0
	p.quotas.retain(func(uid types.UID) bool { _, ok := pods[uid]; return ok })
	turn := min(walkSlice, p.cfg.WalkEntries/4+1)
	for len(p.queue) > 0 && r.Entries < p.cfg.WalkEntries && ctx.Err() == nil {
		w := p.queue[0]
		examined, done, err := w.advance(ctx, p.cfg, &p.quotas, min(turn, p.cfg.WalkEntries-r.Entries))
		r.Entries += max(1, examined)
		if err != nil && ctx.Err() == nil {
			errs = append(errs, err)
		}
		p.mu.Lock()
		p.disk[w.uid] = w.figures(p.disk[w.uid], p.cfg.Clock.Now())
		p.mu.Unlock()
		if p.queue = p.queue[1:]; done {
			r.Pods++
		} else {
			p.queue = append(p.queue, w)
		}
	}
	r.Waiting, r.Quotas = len(p.queue), p.quotas.measured
	return errors.Join(errs...)
}

// dueDisks returns the pods whose figures are missing or too old, or all pods if the disk usage
// has grown, sorted by UID. It deletes the figures of pods that are not in the map pods.
func (p *Provider) dueDisks(pods map[types.UID][]string) (due []types.UID) {
	grown := p.diskGrown()
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.disk, func(uid types.UID, _ podDisk) bool { _, ok := pods[uid]; return !ok })
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		if grown || now.Sub(p.disk[uid].at) >= p.cfg.WalkPeriod {
			due = append(due, uid)
		}
	}
	return due
}

// enqueue removes the pods that are not in the map pods from the queue, appends the due pods that
// are not queued yet, and returns the new queue. It closes the walks of the removed pods.
func enqueue(queue []*podWalk, pods map[types.UID][]string, due []types.UID) []*podWalk {
	kept := make([]*podWalk, 0, len(queue)+len(due))
	queued := make(map[types.UID]bool, len(queue))
	for _, w := range queue {
		if _, ok := pods[w.uid]; !ok {
			w.close()
			continue
		}
		kept = append(kept, w)
		queued[w.uid] = true
	}
	for _, uid := range due {
		if !queued[uid] {
			kept = append(kept, &podWalk{uid: uid, logs: pods[uid]})
		}
	}
	return kept
}
