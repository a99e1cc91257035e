package podmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Change is what the Handler of a [Merge] gets.
type Change struct {
	// Source is the source whose pods led to the change.
	Source string
	// Ops lead from the pods of the previous Change to Pods.
	Ops []Op
	// Pods are all pods that should run, by source and then in the source's order.
	// Both the pods and the slice are shared and must not be modified.
	Pods []*corev1.Pod
	// Unanswered are the sources that have not called Set yet, in the order of the
	// config. A pod of such a source that runs on the node is not in Pods, and must
	// be left alone: the source may define it.
	Unanswered []string
}

// MergeConfig configures a [Merge].
type MergeConfig struct {
	// Sources are the names of the sources, such as [podspec.SourceFile]. Pods of
	// every source but [podspec.SourceAPI] are static. If several sources define a
	// pod and none of them had it before, the first one here gets it. Required.
	Sources []string
	// Handler is called for the first Set of each source, with or without pods, and
	// for each set of pods that differs from the previous one. It runs in the
	// goroutine of the source, one call at a time, and the sources wait for it. It
	// must not call Set. Required.
	Handler func(ctx context.Context, change Change)
	// Logger receives a line for each operation, and for each conflict when it
	// appears and when it is gone. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and health. Optional.
	Observer MergeObserver
}

// MergeObserver holds optional callbacks. They run synchronously inside Set, before
// the Handler, must not block and must not call Set.
type MergeObserver struct {
	// ConflictsChanged is called when conflicts have appeared or are gone, with each
	// of them once.
	ConflictsChanged func(added, gone []Conflict)
}

// Validate reports every problem with c, joined.
func (c MergeConfig) Validate() error {
	var errs []error
	if len(c.Sources) == 0 {
		errs = append(errs, errors.New("field Sources is required"))
	}
	for i, name := range c.Sources {
		if name == "" {
			errs = append(errs, fmt.Errorf("field Sources: the name at %d is empty", i))
		} else if slices.Contains(c.Sources[:i], name) {
			errs = append(errs, fmt.Errorf("field Sources: %q is there twice", name))
		}
	}
	if c.Handler == nil {
		errs = append(errs, errors.New("field Handler is required"))
	}
	return errors.Join(errs...)
}

// Merge makes one stream of operations of several sources. Make it with [NewMerge];
// all methods are safe for concurrent use. It has no goroutine.
//
// Each pod that it delivers has the name of its source as the annotation
// [podspec.SourceAnnotation], whatever the source's pod has there. A pod with another
// value or none is copied once: as long as the source defines the same object, Merge
// delivers the same copy.
//
// A pod that two sources define, by UID or by name, belongs to the source that defined
// it first, for as long as that source does, and is a [Conflict] of the other source.
// Then the other source gets it: as an update if both pods have one UID; otherwise the
// one pod is removed and the other added. A restarted process does not know which
// source was first: the first to call Set gets the pod. A mirror pod and its static
// pod are not the same pod.
type Merge struct {
	cfg MergeConfig

	// step serialises changes, is held during callbacks, and guards held and copies.
	step   sync.Mutex
	held   map[claim]string                       // the source that each claim belongs to
	copies map[string]map[*corev1.Pod]*corev1.Pod // by source: its pods without its name, and their copies

	mu        sync.Mutex // guards the rest, and is never held during callbacks
	defined   map[string][]*corev1.Pod
	pods      []*corev1.Pod
	conflicts []Conflict
}

// NewMerge returns a Merge that waits for all its sources.
func NewMerge(cfg MergeConfig) (*Merge, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podmanager: invalid config: %w", err)
	}
	cfg.Sources = slices.Clone(cfg.Sources)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observer.ConflictsChanged == nil {
		cfg.Observer.ConflictsChanged = func(_, _ []Conflict) {}
	}
	return &Merge{
		cfg:     cfg,
		copies:  make(map[string]map[*corev1.Pod]*corev1.Pod),
		defined: make(map[string][]*corev1.Pod, len(cfg.Sources)),
	}, nil
}

// Source returns a function that calls [Merge.Set] for the source of this name, to give
// to the Run of a source. A name that is not in the config is a mistake in the program:
// the pods are dropped, and an error is logged.
func (m *Merge) Source(name string) func(ctx context.Context, pods []*corev1.Pod) {
	return func(ctx context.Context, pods []*corev1.Pod) {
		if err := m.Set(ctx, name, pods); err != nil {
			m.cfg.Logger.ErrorContext(ctx, "pods dropped", "source", name, "err", err)
		}
	}
}

// Set replaces the pods of one source, and returns when the Handler has returned. It
// fails only if the config has no such source. The pods are kept and never modified; the
// caller must not modify them either. The slice is not kept.
func (m *Merge) Set(ctx context.Context, source string, pods []*corev1.Pod) error {
	if !slices.Contains(m.cfg.Sources, source) {
		return fmt.Errorf("podmanager: no source %q", source)
	}
	m.step.Lock()
	defer m.step.Unlock()
	pods = m.stamp(source, pods)

	m.mu.Lock()
	_, answered := m.defined[source]
	m.defined[source] = pods
	merged := merge(m.cfg.Sources, m.defined, m.held)
	before, known := m.pods, m.conflicts
	m.pods, m.conflicts = slices.Clip(merged.pods), merged.conflicts
	m.mu.Unlock()

	m.held = merged.held
	change := Change{Source: source, Ops: Diff(before, merged.pods), Pods: slices.Clip(merged.pods), Unanswered: m.Unanswered()}
	m.report(ctx, known, merged.conflicts)
	for _, op := range change.Ops {
		m.cfg.Logger.InfoContext(ctx, "pod operation", "op", op.Type.String(),
			"pod", nameOf(op.Pod).String(), "podUID", string(op.Pod.UID), "source", source)
	}
	if !answered || len(change.Ops) > 0 {
		m.cfg.Handler(ctx, change)
	}
	return nil
}

// Unanswered returns the sources that have not called Set yet, in the order of the
// config. The slice is the caller's.
func (m *Merge) Unanswered() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.cfg.Sources {
		if _, ok := m.defined[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// Conflicts returns the pods that are left out, in the order of the sources. The slice
// is the caller's.
func (m *Merge) Conflicts() []Conflict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.conflicts)
}

// stamp returns the pods with the name of their source. It leaves out nil pods.
func (m *Merge) stamp(source string, pods []*corev1.Pod) []*corev1.Pod {
	before, now := m.copies[source], make(map[*corev1.Pod]*corev1.Pod)
	stamped := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		if value, ok := pod.Annotations[podspec.SourceAnnotation]; ok && value == source {
			stamped = append(stamped, pod)
			continue
		}
		if now[pod] = before[pod]; now[pod] == nil {
			now[pod] = stampedCopy(pod, source)
		}
		stamped = append(stamped, now[pod])
	}
	m.copies[source] = now
	return stamped
}

func stampedCopy(pod *corev1.Pod, source string) *corev1.Pod {
	stamped := *pod
	stamped.Annotations = make(map[string]string, len(pod.Annotations)+1)
	maps.Copy(stamped.Annotations, pod.Annotations)
	stamped.Annotations[podspec.SourceAnnotation] = source
	return &stamped
}

// report logs and reports which conflicts are new and which are gone.
func (m *Merge) report(ctx context.Context, before, now []Conflict) {
	added, gone := without(now, before), without(before, now)
	for _, c := range added {
		m.cfg.Logger.WarnContext(ctx, "pod is left out: its UID or name is taken", c.attrs()...)
	}
	for _, c := range gone {
		m.cfg.Logger.InfoContext(ctx, "conflict of a pod is gone", c.attrs()...)
	}
	if len(added)+len(gone) > 0 {
		m.cfg.Observer.ConflictsChanged(added, gone)
	}
}
