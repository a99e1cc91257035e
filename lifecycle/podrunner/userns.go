package podrunner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/atomicfile"
)

// IDRange is the range of user and group IDs of a pod on the host. In the pod,
// the IDs start at 0.
type IDRange struct {
	First, Length uint32
}

// idsPerPod is the number of IDs of a pod. Programs expect IDs of 16 bits.
const idsPerPod = 1 << 16

// ErrNoIDs means that every range of user IDs is in use.
var ErrNoIDs = errors.New("could not find an empty slot to allocate a user namespace")

// wantsUserNamespace reports whether the pod requests its own user namespace
// (KEP-127).
func wantsUserNamespace(pod *corev1.Pod) bool {
	return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
}

// userNamespace returns the pod's user namespace, or the node's user namespace.
func userNamespace(pod *corev1.Pod, node Node) *runtimeapi.UserNamespace {
	if !wantsUserNamespace(pod) || node.UserNamespace == nil {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	}
	ids, ok := node.UserNamespace(pod.UID)
	if !ok {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	}
	mapping := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: ids.First, Length: ids.Length}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping(), Gids: mapping()}
}

// mapMounts maps the owners of files in mounts to the container's own user
// namespace, as the kubelet does (KEP-127). Without the mapping, the files
// would belong to the user nobody in the container, and the container's root
// could not read a Secret.
func mapMounts(config *runtimeapi.ContainerConfig) {
	users := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if users.GetMode() != runtimeapi.NamespaceMode_POD {
		return
	}
	for _, m := range config.GetMounts() {
		m.UidMappings, m.GidMappings = users.GetUids(), users.GetGids()
	}
}

func checkUserNamespace(pod *corev1.Pod, node Node) error {
	if !wantsUserNamespace(pod) {
		return nil
	}
	handler, err := RuntimeHandler(pod, node)
	switch {
	case err != nil:
		return err
	case !node.features(pod).GetUserNamespaces() && handler != "":
		return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
	case !node.features(pod).GetUserNamespaces():
		return errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	case node.UserNamespace == nil:
		return errors.New("can't set `spec.hostUsers: false`, this node has no IDs for user namespaces")
	}
	if _, ok := node.UserNamespace(pod.UID); !ok {
		return errors.New("create user namespace: no user IDs are allocated to the pod")
	}
	return nil
}

// IDRangesConfig configures [IDRanges].
type IDRangesConfig struct {
	// PodRoot is the parent of the pods' directories, whose names are the pods'
	// UIDs. IDRanges stores a pod's IDs in the file userns in the pod's
	// directory, as the kubelet does. PodRoot must be an absolute path.
	// Required.
	PodRoot string
	// First is the first host ID to allocate, a multiple of 65536. Default
	// 65536: the range that starts at ID 0 contains the ID of root and is never
	// allocated.
	First uint32
	// Pods is the number of ranges of 65536 IDs that start at First. Default:
	// as many as possible.
	Pods int
}

// Validate reports every problem with c, joined.
func (c IDRangesConfig) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.PodRoot) {
		errs = append(errs, fmt.Errorf("field PodRoot: %q is not absolute", c.PodRoot))
	}
	if c.First%idsPerPod != 0 {
		errs = append(errs, fmt.Errorf("field First: %d is not a multiple of %d", c.First, idsPerPod))
	}
	if most := 1<<16 - int(max(c.First/idsPerPod, 1)); c.Pods < 0 || c.Pods > most {
		errs = append(errs, fmt.Errorf("field Pods: %d is not between 0 and %d", c.Pods, most))
	}
	return errors.Join(errs...)
}

// IDRanges allocates 65536 user and group IDs to each pod, and never allocates
// an ID to two pods at the same time (KEP-127). It stores each allocation on
// disk before it returns the IDs. A new IDRanges with the same directory reads
// these allocations. IDRanges is safe for concurrent use.
type IDRanges struct {
	root   string
	first  uint32
	ranges int

	mu     sync.Mutex
	listed bool
	unread map[types.UID]bool   // pods whose files have not been read yet
	byPod  map[types.UID]uint32 // range number
	byNr   map[uint32]types.UID
	next   uint32
}

// NewIDRanges returns an IDRanges. The error reports every problem with cfg.
// NewIDRanges reads no files.
func NewIDRanges(cfg IDRangesConfig) (*IDRanges, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podrunner: invalid config of user IDs: %w", err)
	}
	if cfg.First == 0 {
		cfg.First = idsPerPod
	}
	if cfg.Pods == 0 {
		cfg.Pods = 1<<16 - int(cfg.First/idsPerPod)
	}
	return &IDRanges{
		root: cfg.PodRoot, first: cfg.First, ranges: cfg.Pods,
		unread: map[types.UID]bool{}, byPod: map[types.UID]uint32{}, byNr: map[uint32]types.UID{},
	}, nil
}

// Acquire returns the pod's IDs. If the pod has no IDs, Acquire allocates and
// stores new IDs. It returns [ErrNoIDs] if all ranges are in use. If the file
// of one pod can't be read, Acquire allocates nothing, because the IDs of that
// pod are unknown.
func (r *IDRanges) Acquire(uid types.UID) (IDRange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	unread := r.load()
	if nr, ok := r.byPod[uid]; ok {
		return r.ids(nr), nil
	}
	if unread != nil {
		return IDRange{}, unread
	}
	if err := checkFolders(string(uid)); err != nil {
		return IDRange{}, fmt.Errorf("user namespace: %w", err)
	}
	if len(r.byNr) >= r.ranges {
		return IDRange{}, ErrNoIDs
	}
	nr := r.next
	for r.byNr[nr] != "" {
		nr = (nr + 1) % uint32(r.ranges)
	}
	if err := r.write(uid, r.ids(nr)); err != nil {
		return IDRange{}, fmt.Errorf("create user namespace: %w", err)
	}
	r.byPod[uid], r.byNr[nr] = nr, uid
	r.next = (nr + 1) % uint32(r.ranges) // the IDs of a removed pod are not reused at once
	return r.ids(nr), nil
}

// Lookup returns the pod's IDs, and reports whether the pod has IDs.
func (r *IDRanges) Lookup(uid types.UID) (IDRange, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.load() // ignore the error: it is about another pod's file, or this pod's IDs are unknown
	nr, ok := r.byPod[uid]
	return r.ids(nr), ok
}

// Release releases the pod's IDs, even if the pod's file can't be read. The
// caller must have removed the pod's processes and files before. Release
// returns nil if the pod has no IDs.
func (r *IDRanges) Release(uid types.UID) error {
	if err := checkFolders(string(uid)); err != nil {
		return fmt.Errorf("release user namespace: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, file := range []string{r.file(uid) + atomicfile.Suffix, r.file(uid)} { // an interrupted write leaves the first file
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("release user namespace: %w", err)
		}
	}
	delete(r.unread, uid)
	if nr, ok := r.byPod[uid]; ok {
		delete(r.byPod, uid)
		delete(r.byNr, nr)
	}
	return nil
}

func (r *IDRanges) ids(nr uint32) IDRange {
	return IDRange{First: r.first + nr*idsPerPod, Length: idsPerPod}
}

func (r *IDRanges) file(uid types.UID) string { return filepath.Join(r.root, string(uid), "userns") }

// load reads the allocations that an earlier IDRanges stored. If it can't read
// a file, the next call tries again.
func (r *IDRanges) load() error {
	if !r.listed {
		pods, err := os.ReadDir(r.root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list user namespaces of pods: %w", err)
		}
		for _, pod := range pods {
			if pod.IsDir() {
				r.unread[types.UID(pod.Name())] = true
			}
		}
		r.listed = true
	}
	var errs []error
	for _, uid := range sortedKeys(r.unread) {
		if err := r.read(uid); err != nil {
			errs = append(errs, fmt.Errorf("user namespace of pod %s: %w", uid, err))
			continue
		}
		delete(r.unread, uid)
	}
	return errors.Join(errs...)
}

// read reads the IDs in a pod's file if the file exists.
func (r *IDRanges) read(uid types.UID) error {
	text, err := os.ReadFile(r.file(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	nr, err := r.parse(text)
	if err != nil {
		return err
	}
	if r.byNr[nr] != "" {
		return fmt.Errorf("range picked for pod %q already taken", uid)
	}
	r.byPod[uid], r.byNr[nr] = nr, uid
	return nil
}

// usernsFile is the content of the file with a pod's IDs, in the kubelet's
// format.
type usernsFile struct {
	UIDMappings []idMapping `json:"uidMappings"`
	GIDMappings []idMapping `json:"gidMappings"`
}

type idMapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func (r *IDRanges) parse(text []byte) (nr uint32, err error) {
	var f usernsFile
	if err := json.Unmarshal(text, &f); err != nil {
		return 0, fmt.Errorf("invalid user namespace mappings file: %w", err)
	}
	if len(f.UIDMappings) != 1 || len(f.GIDMappings) != 1 || f.UIDMappings[0] != f.GIDMappings[0] {
		return 0, errors.New("user namespace file must have exactly one mapping, the same for users and groups")
	}
	m := f.UIDMappings[0]
	nr = (m.HostID - r.first) / idsPerPod
	if m.ContainerID != 0 || m.Length != idsPerPod || m.HostID < r.first || m.HostID%idsPerPod != 0 || int(nr) >= r.ranges {
		return 0, fmt.Errorf("user namespace mapping %+v is outside the configured ranges", m)
	}
	return nr, nil
}

// write writes the file atomically, and syncs it to disk.
func (r *IDRanges) write(uid types.UID, ids IDRange) error {
	m := []idMapping{{HostID: ids.First, Length: ids.Length}}
	text, err := json.Marshal(usernsFile{UIDMappings: m, GIDMappings: m})
	if err != nil {
		return err
	}
	path := r.file(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return atomicfile.Write(path, text, atomicfile.Durable)
}
