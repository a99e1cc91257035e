package fakecri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Node is a simulated CRI node in memory. It implements the RuntimeService and the
// ImageManagerService interfaces of k8s.io/cri-api, and [Node.Serve] serves the same node
// over gRPC. Create it with [New]; all methods are safe for concurrent use.
//
// Requests and responses are copied, so the caller may change both. Errors are gRPC status
// errors, as from a client of a remote runtime. The CRI methods behave as in containerd
// 2.4; the package comment lists the differences.
type Node struct {
	cfg      Config
	idle     *Program        // the program of images without a configured program
	methods  map[string]bool // the methods that Fail accepts
	streamer Streamer

	mu          sync.Mutex
	programs    map[string]*Program // by canonical image name, followed by a space and the command if the program is only for that command
	now         time.Time           // the time up to which scheduled changes were applied
	skew        time.Duration       // difference between the node's wall clock and Config.Clock
	timers      timers
	changed     chan struct{} // closed at the next change; nil if no call waits
	epoch       uint64        // number of times that the runtime went down
	upAt        time.Time     // the runtime is down until then
	seq         uint64        // the last sequence number that newID returned
	lastNow     int64         // the time at the last call of stamp
	lastStamp   int64         // the result of the last call of stamp
	sandboxes   store[*sandbox]
	containers  store[*container]
	reserved    map[string]string // names in use, with the id of their owner
	addresses   addresses
	services    services
	images      imageStore
	otherBytes  uint64 // bytes on the disk, set by FillDisk
	otherInodes uint64 // inodes on the disk, set by FillDisk
	events      eventQueue
	faults      []*fault
	answer      *fault // the fault of the call that holds the lock, if the fault changes the response
	calls       []Call
	conns       map[*conn]struct{}
}

// New returns a node with cfg's images and no pods. It starts no goroutine.
func New(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("fakecri: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	n := &Node{
		cfg:       cfg,
		idle:      Program{}.clone(),
		programs:  map[string]*Program{},
		timers:    newTimers(),
		methods:   methods(),
		reserved:  map[string]string{},
		addresses: newAddresses(cfg.PodNetwork),
		images:    newImageStore(cfg),
		conns:     map[*conn]struct{}{},
	}
	n.apply(cfg.Programs)
	if err := n.addStreamer(); err != nil {
		return nil, fmt.Errorf("fakecri: %w", err)
	}
	return n, nil
}

// enter is called at the beginning of every CRI call. It records the call, applies
// scheduled changes and faults, and returns with the lock held. If it returns an error, the
// lock is not held. The object of the call is the object with the given id or, if id is
// empty, the object with the given name.
func (n *Node) enter(ctx context.Context, method, id, name string) error {
	n.mu.Lock()
	if id != "" {
		name = n.objectName(id)
	}
	call := Call{Method: method, ID: id, Object: name}
	if n.cfg.Record {
		n.calls = append(n.calls, call)
	}
	if err := n.admit(ctx, call); err != nil {
		n.mu.Unlock()
		return err
	}
	return nil
}

func (n *Node) admit(ctx context.Context, call Call) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	n.advance()
	if n.down() {
		return errUnavailable()
	}
	return n.applyFault(ctx, call)
}

func (n *Node) down() bool { return n.now.Before(n.upAt) }

// objectName returns the name that calls, faults and hooks use for the object with this id:
// namespace/pod, or namespace/pod/container. It is empty for an unknown id.
func (n *Node) objectName(id string) string {
	if c, ok := n.containers.byID[id]; ok {
		return c.object
	}
	if s, ok := n.sandboxes.byID[id]; ok {
		return s.object
	}
	return ""
}

func podName(c *runtimeapi.PodSandboxConfig) string {
	return c.GetMetadata().GetNamespace() + "/" + c.GetMetadata().GetName()
}

// newID returns the sequence number and the id of a new object. The id has 64 hexadecimal
// digits that look random and are the same in every run.
func (n *Node) newID() (seq uint64, id string) {
	n.seq++
	return n.seq, digest(fmt.Sprintf("object %d of seed %d", n.seq, n.cfg.Seed))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// wall returns the time of the node's wall clock.
func (n *Node) wall() time.Time { return n.now.Add(n.skew) }

// stamp returns the current time as a CRI timestamp. If the clock stands still between two
// calls, the second timestamp is a nanosecond later, so that timestamps show the order of
// changes. If the clock is stepped back, timestamps also decrease.
func (n *Node) stamp() int64 {
	now := n.wall().UnixNano()
	stamp := now
	if now >= n.lastNow {
		stamp = max(now, n.lastStamp+1)
	}
	n.lastNow, n.lastStamp = now, stamp
	return stamp
}

// reserve reserves a name for an id. The error contains the id for which the name is
// already reserved.
func (n *Node) reserve(name, id string) error {
	if owner, ok := n.reserved[name]; ok {
		return fmt.Errorf("name %q is reserved for %q", name, owner)
	}
	n.reserved[name] = id
	return nil
}

// Close does nothing. The CRI interfaces require it, but a client that closes its
// connection must not close the node.
func (n *Node) Close(context.Context) error { return nil }
