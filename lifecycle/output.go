package lifecycle

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// HookOutput is what a hook has left behind.
type HookOutput struct {
	PodUID    types.UID
	Container string
	Kind      HookKind
	// Start is when the hook began, Elapsed how long it took.
	Start   time.Time
	Elapsed time.Duration
	// Output is the end of what a command wrote or a server answered, redacted.
	Output string
	// Err is how the hook ended, as in [HookResult].
	Err error
}

// Outputs returns the outputs that are kept, the oldest first. The slice is the
// caller's.
func (r *HookRunner) Outputs() []HookOutput { return r.outputs.all() }

// cut returns the end of an output, redacted. It is redacted first: half a secret
// may look like none.
func (r *HookRunner) cut(output []byte) []byte {
	if len(output) == 0 {
		return nil
	}
	output = r.cfg.Redact(output)
	return output[max(0, len(output)-r.cfg.OutputBytes):]
}

// outputRing keeps the newest outputs, and no more memory than they need.
type outputRing struct {
	keep int

	mu   sync.Mutex
	kept []HookOutput
	next int // where the oldest is, once keep are there
}

func (r *outputRing) add(o HookOutput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) < r.keep {
		r.kept = append(r.kept, o)
		return
	}
	r.kept[r.next] = o
	r.next = (r.next + 1) % r.keep
}

func (r *outputRing) all() []HookOutput {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append([]HookOutput(nil), r.kept[r.next:]...), r.kept[:r.next]...)
}
