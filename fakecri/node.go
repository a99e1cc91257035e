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

// Node is a CRI node in memory. It implements the RuntimeService and the
// ImageManagerService of k8s.io/cri-api, and [Node.Serve] offers the same node
// as a gRPC server. Make it with [New]; all its methods may be called by any
// number of goroutines.
//
// Messages are copied on the way in and on the way out: the caller may change
// both. Errors are gRPC status errors, as from a client of a remote runtime.
// The CRI methods without a comment of their own do what containerd 2.4 does;
// the package comment says what that is, and where they differ.
type Node struct {
	cfg      Config
	idle     *Program        // of images without one
	methods  map[string]bool // those that Fail knows
	streamer Streamer

	mu          sync.Mutex
	programs    map[string]*Program // by canonical image name, with the command after a space
	now         time.Time           // the moment up to which the node is settled
	skew        time.Duration       // by how much its wall clock differs from that
	timers      timers
	changed     chan struct{} // closed at the next change; nil when nobody waits
	epoch       uint64        // how often the runtime went down
	upAt        time.Time     // the runtime is down until then
	seq         uint64        // objects made so far
	lastNow     int64         // the moment of the last stamp,
	lastStamp   int64         // and that stamp
	sandboxes   store[*sandbox]
	containers  store[*container]
	reserved    map[string]string // names in use, with the id of their owner
	addresses   addresses
	services    services
	images      imageStore
	otherBytes  uint64 // what FillDisk put on the disk,
	otherInodes uint64 // and in how many files
	events      eventQueue
	faults      []*fault
	answer      *fault // what becomes of the answer of the call that has the lock
	calls       []Call
	conns       map[*conn]struct{}
}

// New returns a node that holds cfg's images and no pods. It starts nothing:
// the node has no goroutine of its own.
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

// enter is the door of every CRI call: it records the call, brings the node up
// to now and applies faults. It returns with the lock held, or with an error
// and without it. A call is about the object of the given id, or about what
// name says if there is no id.
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
	n.settle()
	if n.down() {
		return errUnavailable()
	}
	return n.suffer(ctx, call)
}

func (n *Node) down() bool { return n.now.Before(n.upAt) }

// objectName returns the name by which calls, faults and hooks know the object
// of an id: namespace/pod, or namespace/pod/container. Empty if there is none.
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

// newID returns the number and the id of a new object: 64 hexadecimal digits
// that look random and are the same in every run.
func (n *Node) newID() (seq uint64, id string) {
	n.seq++
	return n.seq, digest(fmt.Sprintf("object %d of seed %d", n.seq, n.cfg.Seed))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// wall returns now as the node's wall clock has it.
func (n *Node) wall() time.Time { return n.now.Add(n.skew) }

// stamp returns now as a CRI timestamp. Stamps of the same moment count up by a
// nanosecond, so that the order of what happened is the order of times even on
// a clock that stands still; when the clock steps back, so do they.
func (n *Node) stamp() int64 {
	now := n.wall().UnixNano()
	stamp := now
	if now >= n.lastNow {
		stamp = max(now, n.lastStamp+1)
	}
	n.lastNow, n.lastStamp = now, stamp
	return stamp
}

// reserve takes a name for an id. The error says who has it.
func (n *Node) reserve(name, id string) error {
	if owner, ok := n.reserved[name]; ok {
		return fmt.Errorf("name %q is reserved for %q", name, owner)
	}
	n.reserved[name] = id
	return nil
}

// Close does nothing: the node belongs to whoever made it, not to the clients
// that share it. It is there for the CRI interfaces.
func (n *Node) Close(context.Context) error { return nil }
