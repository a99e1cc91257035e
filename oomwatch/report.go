package oomwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Reasons of events.
const (
	// SystemOOM is the kubelet's, about the node.
	SystemOOM = "SystemOOM"
	// OOMKilled is about the pod; the kubelet has none such.
	OOMKilled = "OOMKilled"
)

// EventRecorder records events; client-go's recorder is one.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// ReporterConfig configures a [Reporter].
type ReporterConfig struct {
	// Events takes the events. Required.
	Events EventRecorder
	// Node is what SystemOOM is about, the node or a reference to it. Required.
	Node runtime.Object
	// Pod finds a pod and the name of a container by what the cgroup's path tells of
	// them, of which one may be empty. What takes all its memory at once is dead before
	// much was seen of its container: a handler that looks at a cache should wait for
	// a list made after Kill.Time before it reports. Nil: pods have no events.
	Pod func(uid types.UID, containerID string) (pod *corev1.Pod, container string, ok bool)
	// Burst is how many events a pod may have at once, and Every the time in which
	// it may have one more. Default 5 and 1 min.
	Burst int
	Every time.Duration
	// Suppressed is called for each kill that the limit leaves without an event.
	// Optional.
	Suppressed func(Kill)
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
}

// Validate returns all problems with c, joined; nil if there are none.
func (c ReporterConfig) Validate() error {
	var errs []error
	if c.Events == nil {
		errs = append(errs, errors.New("field Events is nil"))
	}
	if c.Node == nil {
		errs = append(errs, errors.New("field Node is nil"))
	}
	if c.Burst < 0 {
		errs = append(errs, fmt.Errorf("field Burst %d: want none or a positive one", c.Burst))
	}
	if c.Every < 0 {
		errs = append(errs, fmt.Errorf("field Every %s: want none or a positive one", c.Every))
	}
	return errors.Join(errs...)
}

// Reporter makes events of kills. Make it with [NewReporter]; its methods are safe
// for concurrent use.
type Reporter struct {
	cfg ReporterConfig

	mu   sync.Mutex
	used map[types.UID][]time.Time // when each event of a pod counts no more, in order
}

// NewReporter returns a Reporter, or an error that names every problem with cfg.
func NewReporter(cfg ReporterConfig) (*Reporter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("oomwatch: invalid config of a reporter: %w", err)
	}
	cfg.Burst = cmp.Or(cfg.Burst, 5)
	cfg.Every = cmp.Or(cfg.Every, time.Minute)
	if cfg.Suppressed == nil {
		cfg.Suppressed = func(Kill) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Reporter{cfg: cfg, used: map[types.UID][]time.Time{}}, nil
}

// Report records the events of a kill: SystemOOM with the kubelet's text about the
// node if the machine had no memory left, and OOMKilled about the pod if it was one's.
// It fits [Config.Handler].
func (r *Reporter) Report(_ context.Context, kill Kill) {
	if machine(kill) {
		r.cfg.Events.Eventf(r.cfg.Node, corev1.EventTypeWarning, SystemOOM, "%s", systemMessage(kill))
	}
	if r.cfg.Pod == nil || kill.PodUID == "" && kill.ContainerID == "" {
		return
	}
	pod, container, ok := r.cfg.Pod(kill.PodUID, kill.ContainerID)
	if !ok || pod == nil {
		return
	}
	if !r.allow(pod.UID) {
		r.cfg.Suppressed(kill)
		return
	}
	r.cfg.Events.Eventf(pod, corev1.EventTypeWarning, OOMKilled, "%s", podMessage(kill, container))
}

// systemMessage is the kubelet's.
func systemMessage(kill Kill) string {
	const message = "System OOM encountered"
	if kill.Process == "" || kill.PID == 0 {
		return message
	}
	return fmt.Sprintf("%s, victim process: %s, pid: %d", message, printable(kill.Process), kill.PID)
}

func podMessage(kill Kill, container string) string {
	whose := whoseMemory(kill, container)
	if kill.Process == "" {
		return fmt.Sprintf("%s, processes killed: %d", whose, kill.Kills)
	}
	killed := "killed process"
	if kill.Kills > 1 {
		killed = fmt.Sprintf("killed %d processes, of them first", kill.Kills)
	}
	return fmt.Sprintf("%s, %s: %s, pid: %d", whose, killed, printable(kill.Process), kill.PID)
}

// whoseMemory says which limit was reached, if that is known. A container's own may be
// that of a cgroup above its processes': some runtimes make one within.
func whoseMemory(kill Kill, container string) string {
	pod, id := ParseCgroup(kill.LimitCgroup)
	switch {
	case machine(kill):
		return "The node ran out of memory"
	case kill.LimitCgroup == "" && container != "":
		return "Container " + container + " ran out of memory"
	case kill.LimitCgroup == "":
		return "The pod ran out of memory"
	case id != "" && container != "":
		return "Container " + container + " reached its memory limit"
	case pod != "" || id != "":
		return "The pod reached its memory limit"
	default:
		return "The node's pods reached their memory limit"
	}
}

// machine says whether the machine had no memory left, also if the victim's whole cgroup
// had to die for it.
func machine(kill Kill) bool { return kill.Kind == System || kill.LimitCgroup == "/" }

// printable is the name of a process, which may be any bytes, as text.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, name)
}

// allow reports whether the pod may have another event, and counts it. One counts no more
// Every after the one before it.
func (r *Reporter) allow(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Clock.Now()
	for other, used := range r.used {
		used = slices.DeleteFunc(used, func(until time.Time) bool { return !until.After(now) })
		if r.used[other] = used; len(used) == 0 {
			delete(r.used, other)
		}
	}
	used, last := r.used[uid], now
	if len(used) >= r.cfg.Burst {
		return false
	}
	if len(used) > 0 {
		last = used[len(used)-1]
	}
	r.used[uid] = append(used, last.Add(r.cfg.Every))
	return true
}
