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

// Event reasons.
const (
	// SystemOOM is the reason of the kubelet's event about the node.
	SystemOOM = "SystemOOM"
	// OOMKilled is the reason of the event about the pod. The kubelet has no such event.
	OOMKilled = "OOMKilled"
)

// EventRecorder records events. The recorders of client-go implement it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// ReporterConfig configures a [Reporter].
type ReporterConfig struct {
	// Events records the events. Required.
	Events EventRecorder
	// Node is the object of SystemOOM events, the node or a reference to it. Required.
	Node runtime.Object
	// Pod returns the pod and the container's name. The UID and the container ID are from
	// the cgroup's path; either ID may be empty. A container may be killed before the
	// caller's cache contains it. If Pod reads from a cache, call Report only after the
	// cache was updated with a list made after Kill.Time. If Pod is nil, no events about
	// pods are recorded.
	Pod func(uid types.UID, containerID string) (pod *corev1.Pod, container string, ok bool)
	// Burst is the number of events that a pod may have at once. After Burst events, the pod
	// may have one more event in each period Every. The defaults are 5 and 1 min.
	Burst int
	Every time.Duration
	// Suppressed is called for each kill about which no OOMKilled event was recorded
	// because of Burst. Optional.
	Suppressed func(Kill)
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
}

// Validate returns every problem with c, joined.
func (c ReporterConfig) Validate() error {
	var errs []error
	if c.Events == nil {
		errs = append(errs, errors.New("field Events is required"))
	}
	if c.Node == nil {
		errs = append(errs, errors.New("field Node is required"))
	}
	if c.Burst < 0 {
		errs = append(errs, fmt.Errorf("field Burst: %d is negative", c.Burst))
	}
	if c.Every < 0 {
		errs = append(errs, fmt.Errorf("field Every: %s is negative", c.Every))
	}
	return errors.Join(errs...)
}

// Reporter records events about kills. Create it with [NewReporter]; its methods are safe
// for concurrent use.
type Reporter struct {
	cfg ReporterConfig

	mu sync.Mutex
	// used has the times at which the recent events of each pod no longer count against
	// Burst, earliest first.
	used map[types.UID][]time.Time
}

// NewReporter returns a Reporter. The error reports every problem with cfg.
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

// Report records the events about a kill. If the machine was out of memory, it records
// SystemOOM about the node, with the kubelet's text. If the kill affected a known pod that
// may have another event, it records OOMKilled about the pod. Report can be used as
// [Config.Handler].
func (r *Reporter) Report(_ context.Context, kill Kill) {
	if isSystem(kill) {
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

// systemMessage returns the kubelet's message.
func systemMessage(kill Kill) string {
	const message = "System OOM encountered"
	if kill.Process == "" || kill.PID == 0 {
		return message
	}
	return fmt.Sprintf("%s, victim process: %s, pid: %d", message, printable(kill.Process), kill.PID)
}

func podMessage(kill Kill, container string) string {
	whose := limitText(kill, container)
	if kill.Process == "" {
		return fmt.Sprintf("%s, processes killed: %d", whose, kill.Kills)
	}
	killed := "killed process"
	if kill.Kills > 1 {
		killed = fmt.Sprintf("killed %d processes, the first", kill.Kills)
	}
	return fmt.Sprintf("%s, %s: %s, pid: %d", whose, killed, printable(kill.Process), kill.PID)
}

// limitText returns a text that names the memory limit that was reached, if it is known.
// The limit is the container's if LimitCgroup belongs to a container. LimitCgroup need not
// equal VictimCgroup, because some runtimes create a cgroup inside the container's cgroup.
func limitText(kill Kill, container string) string {
	pod, id := ParseCgroup(kill.LimitCgroup)
	switch {
	case isSystem(kill):
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
		return "The node's pods together reached their common memory limit"
	}
}

// isSystem reports whether the machine was out of memory. For a kill of a whole cgroup,
// only LimitCgroup shows this.
func isSystem(kill Kill) bool { return kill.Kind == System || kill.LimitCgroup == "/" }

// printable returns the name of a process, which may contain any bytes, as printable
// text.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, name)
}

// allow reports whether the pod may have another event. If so, it counts that event. An
// event stops counting against Burst after the time Every. If earlier events still count,
// this time starts when the last of them stops counting.
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
