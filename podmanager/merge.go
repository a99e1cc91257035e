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

// Change is the argument of the Handler of a [Merge].
type Change struct {
	// Source is the name of the source whose call of Set caused the change.
	Source string
	// Ops are the operations that lead from the pods of the previous Change to Pods.
	Ops []Op
	// Pods are all pods that should run, in the order of the sources in the config, then in the
	// order in which each source passed its pods. Both the pods and the slice are shared and
	// must not be modified.
	Pods []*corev1.Pod
	// UnreadSources are the sources that have not called Set yet, in the order of the config.
	// Pods of these sources may run on the node without being in Pods. They must keep running,
	// because their source may still define them.
	UnreadSources []string
}

// MergeConfig configures a [Merge].
type MergeConfig struct {
	// Sources are the names of the sources, such as [podspec.SourceFile]. Pods of every source
	// except [podspec.SourceAPI] are static. If a source no longer defines a pod and several
	// other sources define it, Merge uses the pod of the source that comes first in this list.
	// Required.
	Sources []string
	// Handler is called for the first Set of each source, with or without pods, and for
	// each later Set that results in operations. It runs in the goroutine that called
	// Set; other calls of Set wait until it has returned. It must not call Set. Required.
	Handler func(ctx context.Context, change Change)
	// Logger receives a line for each operation, and for each conflict when it appears and
	// when it is resolved. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and health. Optional.
	Observer MergeObserver
}

// MergeObserver holds optional callbacks. They run synchronously inside Set, before the
// Handler. They must not block or call Set.
type MergeObserver struct {
	// ConflictsChanged is called when conflicts appear or are resolved, with each new and
	// each resolved conflict once.
	ConflictsChanged func(added, resolved []Conflict)
}

// Validate returns all problems with c as one joined error.
func (c MergeConfig) Validate() error {
	var errs []error
	if len(c.Sources) == 0 {
		errs = append(errs, errors.New("field Sources is required"))
	}
	for i, name := range c.Sources {
		if name == "" {
			errs = append(errs, fmt.Errorf("field Sources[%d]: the name is empty", i))
		} else if slices.Contains(c.Sources[:i], name) {
			errs = append(errs, fmt.Errorf("field Sources: %q occurs twice", name))
		}
	}
	if c.Handler == nil {
		errs = append(errs, errors.New("field Handler is required"))
	}
	return errors.Join(errs...)
}

// Merge merges the pods of several sources into one stream of operations. Create it with
// [NewMerge]; all methods are safe for concurrent use. It starts no goroutine.
//
// Each delivered pod has the name of its source as the annotation [podspec.SourceAnnotation].
// If the source passes a pod in which this annotation is missing or has another value, Merge
// copies the pod once: as long as the source passes the same object, Merge delivers the same
// copy.
//
// If two sources define pods with the same UID or the same name, Merge uses the pod that was
// defined first, as long as the source of this pod defines it. The pod of the other source is a
// [Conflict]. When the first source no longer defines the pod, the pod of the other source
// replaces it: as an update if both have the same UID, otherwise as a removal and an addition.
// After a restart of the process, Merge uses the pod of the source that calls Set first. A
// mirror pod and its static pod do not conflict.
type Merge struct {
	cfg MergeConfig

	// step serialises changes, is held during callbacks, and guards owners and copies.
	step   sync.Mutex
	owners map[podKey]string                      // the source of the pod that has the key
	copies map[string]map[*corev1.Pod]*corev1.Pod // by source: the pods without the source's annotation, and their annotated copies

	mu        sync.Mutex // guards the fields below, and is never held during callbacks
	defined   map[string][]*corev1.Pod
	pods      []*corev1.Pod
	conflicts []Conflict
}

// NewMerge returns a Merge without pods. None of its sources has delivered pods yet.
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

// Source returns a function that calls [Merge.Set] for the source with this name. Pass the
// function to the Run method of the source. If the name is not in the config, which is a
// programming error, the function drops the pods and logs an error.
func (m *Merge) Source(name string) func(ctx context.Context, pods []*corev1.Pod) {
	return func(ctx context.Context, pods []*corev1.Pod) {
		if err := m.Set(ctx, name, pods); err != nil {
			m.cfg.Logger.ErrorContext(ctx, "dropped pods of an unknown source", "source", name, "err", err)
		}
	}
}

// Set replaces the pods of one source, and returns when the Handler has returned. It returns
// an error only if source is not in the config. The pods are retained and never modified; the
// caller must not modify them either. The slice is not retained.
func (m *Merge) Set(ctx context.Context, source string, pods []*corev1.Pod) error {
	if !slices.Contains(m.cfg.Sources, source) {
		return fmt.Errorf("podmanager: unknown source %q", source)
	}
	m.step.Lock()
	defer m.step.Unlock()
	pods = m.annotate(source, pods)

	m.mu.Lock()
	_, answered := m.defined[source]
	m.defined[source] = pods
	merged := merge(m.cfg.Sources, m.defined, m.owners)
	before, known := m.pods, m.conflicts
	m.pods, m.conflicts = slices.Clip(merged.pods), merged.conflicts
	m.mu.Unlock()

	m.owners = merged.owners
	change := Change{Source: source, Ops: Diff(before, merged.pods), Pods: slices.Clip(merged.pods), UnreadSources: m.UnreadSources()}
	m.reportConflicts(ctx, known, merged.conflicts)
	for _, op := range change.Ops {
		m.cfg.Logger.InfoContext(ctx, "a source changed its pods", "op", op.Type.String(),
			"pod", nameOf(op.Pod).String(), "podUID", string(op.Pod.UID), "source", source)
	}
	if !answered || len(change.Ops) > 0 {
		m.cfg.Handler(ctx, change)
	}
	return nil
}

// UnreadSources returns the sources that have not called Set yet, in the order of the config.
// The caller owns the slice.
func (m *Merge) UnreadSources() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.cfg.Sources {
		if _, ok := m.defined[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// Conflicts returns the pods that are ignored because of a conflict, in the order of the
// sources. The caller owns the slice.
func (m *Merge) Conflicts() []Conflict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.conflicts)
}

// annotate returns the pods with the name of their source as an annotation. It omits nil
// pods.
func (m *Merge) annotate(source string, pods []*corev1.Pod) []*corev1.Pod {
	before := m.copies[source]
	now := make(map[*corev1.Pod]*corev1.Pod, len(before))
	annotated := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		if value, ok := pod.Annotations[podspec.SourceAnnotation]; ok && value == source {
			annotated = append(annotated, pod)
			continue
		}
		if now[pod] = before[pod]; now[pod] == nil {
			now[pod] = annotatedCopy(pod, source)
		}
		annotated = append(annotated, now[pod])
	}
	m.copies[source] = now
	return annotated
}

func annotatedCopy(pod *corev1.Pod, source string) *corev1.Pod {
	annotated := *pod
	annotated.Annotations = make(map[string]string, len(pod.Annotations)+1)
	maps.Copy(annotated.Annotations, pod.Annotations)
	annotated.Annotations[podspec.SourceAnnotation] = source
	return &annotated
}

// reportConflicts logs new and resolved conflicts and calls the observer.
func (m *Merge) reportConflicts(ctx context.Context, before, now []Conflict) {
	added, resolved := without(now, before), without(before, now)
	for _, c := range added {
		m.cfg.Logger.WarnContext(ctx, "ignored pod: another pod has its UID or name", c.attrs()...)
	}
	for _, c := range resolved {
		m.cfg.Logger.InfoContext(ctx, "pod conflict resolved", c.attrs()...)
	}
	if len(added)+len(resolved) > 0 {
		m.cfg.Observer.ConflictsChanged(added, resolved)
	}
}
