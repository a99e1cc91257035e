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

// walkTurn is how many files of one pod are looked at before it is another one's
// turn, at most: a pod with millions of them keeps nobody waiting.
const walkTurn = 4096

// A diskKind says what a folder of a pod is for.
type diskKind int

const (
	volumeDisk diskKind = iota // named after the volume
	logDisk                    // named after the container
	otherDisk                  // named after its path
)

// A diskTarget is a folder or file of a pod that is measured by itself.
type diskTarget struct {
	kind diskKind
	name string
	path string
}

// A diskFigure is what a target takes.
type diskFigure struct {
	diskTarget
	eviction.DiskUsage
}

// podDisk is what was found out about a pod. It is not modified any more.
type podDisk struct {
	figures []diskFigure
	at      time.Time // when all of it was known last; zero: not yet
}

// A podWalk measures the targets of one pod, one after the other.
type podWalk struct {
	uid     types.UID
	logs    []string // the pod's folders of logs
	mapped  bool     // the pod has a user namespace of its own
	targets []diskTarget
	done    []diskFigure
	missed  []string // paths that could not be listed or measured
	current *walk    // of the first target that is not done
	begun   bool
}

func (w *podWalk) close() {
	if w.current != nil {
		w.current.close()
	}
}

// localPlugins are the kinds of volumes whose contents are on the node itself.
// Others may be far away, where even asking may take for ever.
func localPlugins() []string {
	return []string{
		"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~git-repo",
		"kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api",
	}
}

// diskTargets lists what a pod has on the node's filesystem, in its own folder and those
// of its logs, and the folders that could not be listed, with the error. Folders that
// hold nothing but mounts are left out: what is bound there is counted elsewhere.
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

// entries lists a folder; one that does not exist has none. With an error there are
// none: a part of a folder is not all of it.
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

// list lists the targets and notes their projects. It is a turn of its own: those of
// all pods that wait are noted before any is measured.
func (w *podWalk) list(cfg Config, q *quotas) (err error) {
	w.begun = true
	dir := filepath.Join(cfg.NodePath, "pods", string(w.uid))
	// The kubelet and package podrunner keep the ids of a pod's user namespace in this
	// file. No container can write beside it.
	w.mapped = exists(filepath.Join(dir, "userns"))
	w.targets, w.missed, err = diskTargets(dir, w.logs)
	for _, t := range w.targets {
		q.note(w.uid, t.path)
	}
	return err
}

// hasQuota says whether what the quota of a target says can be relied upon. Whoever
// owns a file can give it another project, or none, except from within a user
// namespace; so the kubelet, too, has quotas on volumes of no other pods
// (KEP-1029). Logs are the runtime's.
func (w *podWalk) hasQuota(t diskTarget) bool {
	return t.kind == logDisk || t.kind == volumeDisk && w.mapped
}

// advance measures for one turn and says at how many files it looked, and whether
// that was the end. A target with an error is missed, and the others are measured.
func (w *podWalk) advance(ctx context.Context, cfg Config, q *quotas, n int) (looked int, done bool, err error) {
	if !w.begun {
		err = w.list(cfg, q)
		return 1, len(w.targets) == 0, err
	}
	var errs []error
	for looked < n && len(w.done) < len(w.targets) {
		target := w.targets[len(w.done)]
		if w.current == nil {
			looked++
			if w.hasQuota(target) {
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
		more, over, err := w.current.advance(ctx, n-looked)
		looked += more
		if over {
			errs = append(errs, w.finish(diskFigure{target, usageOf(w.current, cfg.Clock.Now())}, err))
			w.current = nil
		} else if err != nil { // ctx is done
			return looked, false, err
		}
	}
	return looked, len(w.done) == len(w.targets), errors.Join(errs...)
}

// finish records the figure of a target. With an error the target is missed.
func (w *podWalk) finish(figure diskFigure, err error) error {
	w.done = append(w.done, figure)
	if err == nil {
		return nil
	}
	w.missed = append(w.missed, figure.path)
	return fmt.Errorf("disk usage of %s: %w", figure.path, err)
}

// begin begins the walk of a target, or returns its figure if none is needed: what
// is in memory knows what it holds, and what is gone takes nothing of anything.
func begin(target diskTarget, now time.Time) (diskFigure, *walk, error) {
	figure := diskFigure{diskTarget: target}
	// A container may be able to put a link to any filesystem beside its logs.
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

// usage is a figure, unknown if the value is.
func usage(v value, at time.Time) eviction.Usage {
	if !v.ok {
		return eviction.Usage{}
	}
	return eviction.Usage{Value: toInt(v.n), Time: at}
}

// figures is what is known so far: what has been measured, and for the rest what
// was known before, of what was missed too. What a walk under way has counted already
// is a lower bound; if that is more than was known, it counts: a pod that fills the
// disk is found before all of it is.
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

// usage returns what is known of a target.
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

// diskGrowth is how much a filesystem grows, in bytes or inodes, before it is worth
// to find out who it was.
const (
	diskGrowthBytes  = 16 << 20
	diskGrowthInodes = 1000
)

// A diskLevel is how full the filesystems of volumes and logs were at their emptiest
// since they were last found to have grown.
type diskLevel struct{ bytes, inodes value }

// grown says whether they have grown.
func (l *diskLevel) grown(bytes, inodes value) bool {
	if l.bytes.plus(known(diskGrowthBytes)).n <= bytes.n && l.bytes.ok && bytes.ok ||
		l.inodes.plus(known(diskGrowthInodes)).n <= inodes.n && l.inodes.ok && inodes.ok {
		*l = diskLevel{bytes, inodes}
		return true
	}
	*l = diskLevel{bytes.least(l.bytes), inodes.least(l.inodes)}
	return false
}

// diskGrown looks whether the filesystems have grown. What can't be measured has not.
func (p *Provider) diskGrown() bool {
	volumes, _ := statfs(p.cfg.NodePath)
	logs, _ := statfs(p.cfg.LogPath)
	zero := known(0)
	return p.level.grown(
		volumes.used.or(zero).plus(logs.used.or(zero)),
		volumes.inodes.minus(volumes.inodesFree).or(zero).plus(logs.inodes.minus(logs.inodesFree).or(zero)),
	)
}

// refreshDisk measures what pods take whose turn it is, until the budget is used up or
// each has been measured once.
func (p *Provider) refreshDisk(ctx context.Context, r *Refreshed) error {
	errs := []error{p.folders.list(p.cfg)}
	pods := p.folders.byPod(p.cfg)
	p.queue = enqueue(p.queue, pods, p.dueDisks(pods))
	p.quotas.told = 0
	p.quotas.keep(func(uid types.UID) bool { _, ok := pods[uid]; return ok })
	turn := min(walkTurn, p.cfg.WalkEntries/4+1)
	for len(p.queue) > 0 && r.Entries < p.cfg.WalkEntries && ctx.Err() == nil {
		w := p.queue[0]
		looked, done, err := w.advance(ctx, p.cfg, &p.quotas, min(turn, p.cfg.WalkEntries-r.Entries))
		r.Entries += max(1, looked)
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
	r.Waiting, r.Quotas = len(p.queue), p.quotas.told
	return errors.Join(errs...)
}

// dueDisks returns the pods, in order, whose figures are missing or too old, or all
// if the disk has grown; it forgets what it knows of others than these pods.
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

// enqueue returns the queue without pods that are gone, and with those that are due
// and not in it.
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
