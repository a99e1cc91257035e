package stats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/eviction"
)

// nodeSignals is the number of node signals.
const nodeSignals = 9

// nodeProbe measures the node's signals from a few files that stay open.
type nodeProbe struct {
	cfg   Config
	clock clock.PassiveClock

	mu       sync.Mutex // guards the following fields
	buf      []byte
	surveyed bool
	survey
	meminfo, zoneinfo, loadavg    kernelFile
	rootStat, rootUsage           kernelFile
	podsStat, podsUsage, podsPIDs kernelFile
	errs                          []error

	observations [nodeSignals]eviction.Observation // the observations in the last result of Node
}

// survey has the facts about the node that rarely change. Each refresh updates them.
type survey struct {
	hierarchy hierarchy
	pods      string // the cgroup of all pods; empty if the cgroup does not exist
	maxTasks  value
	podsTasks value // limit of processes in the pods' cgroup
	podsLimit value
	watermark value

	layout                   eviction.Layout
	nodeFS, imageFS, writeFS string // paths; empty if unknown
	imageUse, writeUse       *runtimeapi.FilesystemUsage
	err                      error // why some facts are unknown
}

func (n *nodeProbe) init(cfg Config) {
	n.cfg, n.clock = cfg, cfg.Clock
	n.meminfo.path = filepath.Join(cfg.ProcRoot, "meminfo")
	n.zoneinfo.path = filepath.Join(cfg.ProcRoot, "zoneinfo")
	n.loadavg.path = filepath.Join(cfg.ProcRoot, "loadavg")
}

func (n *nodeProbe) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range []*kernelFile{
		&n.meminfo, &n.zoneinfo, &n.loadavg, &n.rootStat, &n.rootUsage, &n.podsStat, &n.podsUsage, &n.podsPIDs,
	} {
		f.close()
	}
}

// Node measures the node's signals now. It usually only reads a few files that it keeps open, and
// calls statfs. A signal that can't be measured is missing in the result, and the error describes
// the cause. If Images is set, the filesystems of images and writable layers are unknown before the
// first refresh.
//
// The next call of Node reuses the slice in the result.
func (p *Provider) Node(context.Context) (eviction.NodeStats, error) {
	return p.node.measure(p.node.observations[:0])
}

// measure measures the node's signals and appends the observations to out.
func (n *nodeProbe) measure(out []eviction.Observation) (eviction.NodeStats, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prepare()
	n.errs = n.errs[:0]
	if n.err != nil {
		n.errs = append(n.errs, n.err)
	}
	out = n.memory(out)
	out = n.allocatable(out)
	out = n.filesystems(out)
	out = n.processes(out)
	return eviction.NodeStats{Observations: out, Layout: n.layout}, errors.Join(n.errs...)
}

// prepare surveys the node on the first call. As long as the cgroup of all pods or its memory limit
// is missing, each call searches for them again. The cgroup is created with the first pod, and gets
// its limit a moment later. Callers hold mu.
func (n *nodeProbe) prepare() {
	if !n.surveyed {
		n.adopt(n.surveyNode(nil, nil))
	}
	if n.pods == "" || !n.podsLimit.ok {
		s := n.survey
		s.findPodsCgroup(n.cfg, n.buf)
		n.adopt(s)
	}
}

// add appends an observation if its values are known.
func add(out []eviction.Observation, signal eviction.Signal, available, capacity value, at time.Time) []eviction.Observation {
	if !available.ok || !capacity.ok {
		return out
	}
	return append(out, eviction.Observation{
		Signal: signal, Available: toInt(available.n), Capacity: toInt(capacity.n), Time: at,
	})
}

func toInt(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// read returns the content of one of the open files. If that fails, it records the error and
// returns nil.
func (n *nodeProbe) read(f *kernelFile) []byte {
	b, err := f.read(&n.buf)
	if err != nil {
		n.errs = append(n.errs, err)
		return nil
	}
	return b
}

func (n *nodeProbe) memory(out []eviction.Observation) []eviction.Observation {
	at := n.clock.Now()
	m := parseMeminfo(n.read(&n.meminfo))
	var root cgroupMemory
	if n.cfg.Estimator.needsCgroup() {
		root.memoryStat = parseMemoryStat(n.read(&n.rootStat))
		if root.usage = root.anon.plus(root.file); !n.hierarchy.v2 {
			root.usage = parseNumber(n.read(&n.rootUsage))
		}
	}
	available := n.cfg.Estimator.available(m, root, n.zones())
	if !available.ok {
		n.errs = append(n.errs, fmt.Errorf("could not compute the available memory (estimator %s) from %s", n.cfg.Estimator, n.meminfo.path))
	}
	return add(out, eviction.MemoryAvailable, available, m.total, at)
}

// zones returns the figures of the memory zones that the estimator uses.
func (n *nodeProbe) zones() zones {
	z := zones{low: n.watermark}
	if n.cfg.Estimator == MemAvailable {
		b, _ := n.zoneinfo.read(&n.buf) // optional: an error leaves the figure unknown
		z.perCPUFree = parseZones(b, os.Getpagesize()).perCPUFree
	}
	return z
}

// allocatable measures how much more memory all pods together may use, if their cgroup has a
// limit.
func (n *nodeProbe) allocatable(out []eviction.Observation) []eviction.Observation {
	if n.pods == "" || !n.podsLimit.ok {
		return out
	}
	at := n.clock.Now()
	m := cgroupMemory{limit: n.podsLimit}
	m.memoryStat = parseMemoryStat(n.read(&n.podsStat))
	m.usage = parseNumber(n.read(&n.podsUsage))
	return add(out, eviction.AllocatableMemoryAvailable, m.limit.minus(m.workingSet()), m.limit, at)
}

func (n *nodeProbe) filesystems(out []eviction.Observation) []eviction.Observation {
	type signals struct {
		path          string
		bytes, inodes eviction.Signal
	}
	var last struct {
		path string
		fsUsage
		at time.Time
	}
	for _, s := range [...]signals{
		{n.nodeFS, eviction.NodeFSAvailable, eviction.NodeFSInodesFree},
		{n.writeFS, eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree},
		{n.imageFS, eviction.ImageFSAvailable, eviction.ImageFSInodesFree},
	} {
		if s.path == "" {
			continue
		}
		if s.path != last.path {
			var err error
			last.path, last.at = s.path, n.clock.Now()
			if last.fsUsage, err = statfs(s.path); err != nil {
				n.errs = append(n.errs, err)
			}
		}
		out = add(out, s.bytes, last.available, last.capacity, last.at)
		out = add(out, s.inodes, last.inodesFree, last.inodes, last.at)
	}
	return out
}

// processes measures how many more processes can be started on the node. If fewer processes can be
// started in all pods together, because of their common limit, it measures this number.
func (n *nodeProbe) processes(out []eviction.Observation) []eviction.Observation {
	at := n.clock.Now()
	capacity, available := n.maxTasks, n.maxTasks.minus(parseTasks(n.read(&n.loadavg)))
	if n.podsTasks.ok {
		left := n.podsTasks.minus(parseNumber(n.read(&n.podsPIDs)))
		if left.ok && (!available.ok || left.n < available.n) {
			capacity, available = n.podsTasks, left
		}
	}
	return add(out, eviction.PIDAvailable, available, capacity, at)
}

// refreshNode updates the facts that [Provider.Node] uses.
func (p *Provider) refreshNode(ctx context.Context) error {
	var info *runtimeapi.ImageFsInfoResponse
	var err error
	if p.cfg.Images != nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if info, err = p.cfg.Images.ImageFsInfo(ctx); err != nil {
			err = fmt.Errorf("get image filesystem info: %w", err)
		}
	}
	n := &p.node
	s := n.surveyNode(info, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && n.surveyed { // use the previous locations, which are probably still valid
		s.layout, s.imageFS, s.writeFS = n.layout, n.imageFS, n.writeFS
		s.imageUse, s.writeUse = n.imageUse, n.writeUse
	}
	n.adopt(s)
	return s.err
}

// adopt makes s the current survey and adapts the paths of the open files. Callers hold mu.
func (n *nodeProbe) adopt(s survey) {
	n.survey, n.surveyed = s, true
	h, names := s.hierarchy, s.hierarchy.memoryNames()
	n.rootStat.moveTo(h.file("memory", "/", "memory.stat"))
	n.rootUsage.moveTo(h.file("memory", "/", names.usage))
	n.podsStat.moveTo(h.file("memory", s.pods, "memory.stat"))
	n.podsUsage.moveTo(h.file("memory", s.pods, names.usage))
	n.podsPIDs.moveTo(h.file("pids", s.pods, "pids.current"))
}

// surveyNode gathers the facts about the node. info is the runtime's response about its
// filesystems, infoErr the error of that call.
func (n *nodeProbe) surveyNode(info *runtimeapi.ImageFsInfoResponse, infoErr error) (s survey) {
	var buf []byte
	s.hierarchy = hierarchyAt(n.cfg.CgroupRoot)
	s.findPodsCgroup(n.cfg, buf)
	number := func(name string) value {
		b, err := readFile(filepath.Join(n.cfg.ProcRoot, name), &buf)
		if err != nil {
			return value{}
		}
		return parseNumber(b)
	}
	s.maxTasks = number("sys/kernel/pid_max").least(number("sys/kernel/threads-max"))
	var errs []error
	if n.cfg.Estimator == WorkingSet {
		b, err := readFile(filepath.Join(n.cfg.ProcRoot, "zoneinfo"), &buf)
		s.watermark = parseZones(b, os.Getpagesize()).low
		errs = append(errs, err)
	}
	s.err = errors.Join(append(errs, s.findFilesystems(n.cfg, info, infoErr, &buf))...)
	return s
}

// findPodsCgroup finds the cgroup of all pods and reads its limits, using buf.
func (s *survey) findPodsCgroup(cfg Config, buf []byte) {
	r := cgroupReader{hierarchy: s.hierarchy, buf: buf}
	if s.pods = r.findPods(cfg.PodsCgroup); s.pods == "" {
		return
	}
	s.podsTasks = r.number("pids", s.pods, "pids.max")
	s.podsLimit = r.number("memory", s.pods, r.memoryNames().limit)
}

// findFilesystems finds the filesystems of volumes, images and writable layers and their
// layout. If two of them are the same filesystem, they get the same path, so that statfs is
// called once.
func (s *survey) findFilesystems(cfg Config, info *runtimeapi.ImageFsInfoResponse, infoErr error, buf *[]byte) error {
	s.nodeFS, s.imageFS, s.writeFS = cfg.NodePath, cfg.ImagePath, cfg.ContainerPath
	if cfg.Images != nil {
		s.imageFS, s.writeFS = "", ""
		if infoErr != nil || info == nil {
			return infoErr
		}
		s.imageUse, s.writeUse = mounted(info.GetImageFilesystems()), mounted(info.GetContainerFilesystems())
		s.imageFS, s.writeFS = s.imageUse.GetFsId().GetMountpoint(), s.writeUse.GetFsId().GetMountpoint()
		if s.writeFS == "" {
			s.writeFS = s.imageFS // the runtime reports no filesystem of writable layers
		}
		if s.imageFS == "" {
			return errors.New("image filesystem info: the runtime reports no image filesystem")
		}
	}
	text, err := readFile(filepath.Join(cfg.ProcRoot, "self", "mountinfo"), buf)
	if err != nil {
		text = nil // optional: devices identify most filesystems
	}
	mounts := parseMounts(text)
	var ids [3]fsID
	for i, path := range []string{s.nodeFS, s.imageFS, s.writeFS} {
		dev, err := device(path)
		if err != nil {
			return fmt.Errorf("filesystem layout: %w", err)
		}
		ids[i] = identify(dev, path, mounts)
	}
	if s.layout, err = layoutOf(ids[0], ids[1], ids[2]); err != nil {
		return err
	}
	if s.layout == eviction.SplitFS || s.layout == eviction.SingleFS {
		s.writeFS = s.nodeFS // the same path, for a single statfs
	}
	if s.layout != eviction.SplitFS {
		s.imageFS = s.writeFS
	}
	return nil
}

// mounted returns the first filesystem with a mount point, or nil if no filesystem has a mount
// point.
func mounted(all []*runtimeapi.FilesystemUsage) *runtimeapi.FilesystemUsage {
	for _, fs := range all {
		if fs.GetFsId().GetMountpoint() != "" {
			return fs
		}
	}
	return nil
}
