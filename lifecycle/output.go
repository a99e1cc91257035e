package lifecycle

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// HookOutput is the recorded output of a hook.
type HookOutput struct {
	PodUID    types.UID
	Container string
	Kind      HookKind
	// Start is when the hook started, and Elapsed is how long it ran.
	Start   time.Time
	Elapsed time.Duration
	// Output is the redacted last part of the output of the command, or of the
	// response of the server.
	Output string
	// Err is the error of the hook, as in [HookResult].
	Err error
}

// Outputs returns the recorded outputs, the oldest first. The caller owns the
// slice.
func (r *HookRunner) Outputs() []HookOutput { return r.outputs.all() }

// cut redacts an output and returns its last OutputBytes bytes. It redacts
// before it cuts, because Redact may not recognize a part of a secret.
func (r *HookRunner) cut(output []byte) []byte {
	if len(output) == 0 {
		return nil
	}
	output = r.cfg.Redact(output)
	return output[max(0, len(output)-r.cfg.OutputBytes):]
}

// outputRing holds the newest outputs. Their number is at most size.
type outputRing struct {
	size int

	mu      sync.Mutex
	outputs []HookOutput
	next    int // index of the oldest output when the ring is full
}

func (r *outputRing) add(o HookOutput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.outputs) < r.size {
		r.outputs = append(r.outputs, o)
		return
	}
	r.outputs[r.next] = o
	r.next = (r.next + 1) % r.size
}

func (r *outputRing) all() []HookOutput {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append([]HookOutput(nil), r.outputs[r.next:]...), r.outputs[:r.next]...)
}
