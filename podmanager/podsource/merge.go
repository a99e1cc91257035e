package podsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Change is what a [Merge] tells.
type Change struct {
	// Source is the one whose answer led to it.
	Source string
	// Ops lead from the pods of the Change before this one to Pods.
	Ops []Op
	// Pods are all pods that should run, by source and then in the source's order.
	// Both the pods and the slice are shared and must not be modified.
	Pods []*corev1.Pod
	// Unanswered are the sources that have said nothing yet, in the order of the
	// config. What runs on the node and comes from one of them is not in Pods, and
	// must be left alone: it may be wanted.
	Unanswered []string
}

// MergeConfig says what a [Merge] merges, and who is told.
type MergeConfig struct {
	// Sources are the names of the sources; of two that give the same pod at their
	// first answer the earlier one here counts. To match what runs already with
	// the source it came from, use the values of [SourceAnnotation]. Required.
	Sources []string
	// Handler is told of each first answer of a source, empty or not, and of each
	// set of pods that differs from the one before. It runs in the goroutine of the
	// source, one call at a time, and the sources wait for it. It must not call
	// Set. Required.
	Handler func(ctx context.Context, change Change)
	// Logger receives a line for each operation, and for each problem when it
	// appears and when it is gone. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and health: ProblemsChanged, that is.
	// Optional.
	Observer Observer
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
// A pod that two sources give, by UID or by name, stays with the source that gave it
// first, for as long as that one does, and is a [Problem] of the other; then it goes
// over. If both have one UID it only changes hands; otherwise the one ends and the
// other begins. Who was first is the process's memory: after a restart it is whoever
// answers first. A mirror pod and its static pod are not the same pod.
type Merge struct {
	cfg MergeConfig

	step sync.Mutex // serialises changes, and is held during callbacks
	held map[claim]string

	answer answer // pods and problems

	mu    sync.Mutex // guards given, and is never held during callbacks
	given map[string][]*corev1.Pod
}

// NewMerge returns a Merge that waits for all its sources.
func NewMerge(cfg MergeConfig) (*Merge, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	cfg.Sources = slices.Clone(cfg.Sources)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Merge{
		cfg:    cfg,
		answer: answer{log: cfg.Logger, observer: cfg.Observer.withDefaults()},
		given:  make(map[string][]*corev1.Pod, len(cfg.Sources)),
	}, nil
}

// Source returns a function to tell m of the pods of one of its sources, for
// [Directory.Run] or [HTTP.Run]. A name that is not in the config is a mistake in the
// program; what is told under it is dropped and logged as an error.
func (m *Merge) Source(name string) func(ctx context.Context, pods []*corev1.Pod) {
	return func(ctx context.Context, pods []*corev1.Pod) {
		if err := m.Set(ctx, name, pods); err != nil {
			m.cfg.Logger.ErrorContext(ctx, "pods dropped", "source", name, "err", err)
		}
	}
}

// Set replaces the pods of one source, and returns when the Handler has been told of
// what that changes. It fails only if there is no such source. The slice is kept.
func (m *Merge) Set(ctx context.Context, source string, pods []*corev1.Pod) error {
	if !slices.Contains(m.cfg.Sources, source) {
		return fmt.Errorf("podsource: no source %q", source)
	}
	m.step.Lock()
	defer m.step.Unlock()
	m.mu.Lock()
	_, answered := m.given[source]
	m.given[source] = pods
	m.mu.Unlock()

	merged := merge(m.cfg.Sources, m.given, m.held)
	m.held = merged.held
	change := Change{Source: source, Pods: slices.Clip(merged.pods), Unanswered: m.Unanswered()}
	change.Ops = Diff(m.answer.result(0).Pods, merged.pods)
	m.answer.mu.Lock()
	m.answer.pods = change.Pods
	m.answer.mu.Unlock()
	m.answer.publish(ctx, merged.problems)
	for _, op := range change.Ops {
		m.cfg.Logger.InfoContext(ctx, "pod operation", "op", op.Type.String(),
			"pod", op.Pod.Namespace+"/"+op.Pod.Name, "podUID", string(op.Pod.UID), "source", source)
	}
	if !answered || len(change.Ops) > 0 {
		m.cfg.Handler(ctx, change)
	}
	return nil
}

// Unanswered returns the sources that have said nothing yet, in the order of the
// config: those from which pods may run that nobody has asked for so far. The slice
// is the caller's.
func (m *Merge) Unanswered() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.cfg.Sources {
		if _, ok := m.given[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// Problems returns the pods that two sources give. The slice is the caller's.
func (m *Merge) Problems() []Problem { return m.answer.result(0).Problems }

// claim is what only one pod can have: a UID, or a name among pods or among mirrors.
type claim struct {
	uid    types.UID
	mirror bool
	name   types.NamespacedName
}

func claims(pod *corev1.Pod) [2]claim {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	return [2]claim{{uid: pod.UID}, {mirror: mirror, name: name}}
}

// merged is what all sources together give.
type merged struct {
	pods     []*corev1.Pod
	held     map[claim]string // the source that each claim belongs to
	problems []Problem
}

// merge lets those choose first who had the name and the UID before, then those who
// had one of them, and then the rest; each time in the order of sources.
func merge(sources []string, given map[string][]*corev1.Pod, before map[claim]string) merged {
	m := merged{held: make(map[claim]string)}
	taken := make(map[*corev1.Pod]bool)
	for had := 2; had >= 0; had-- {
		for _, source := range sources {
			for _, pod := range given[source] {
				c := claims(pod)
				if holds(before, source, c) == had && m.held[c[0]] == "" && m.held[c[1]] == "" {
					taken[pod] = true
					m.held[c[0]], m.held[c[1]] = source, source
				}
			}
		}
	}
	for _, source := range sources {
		for _, pod := range given[source] {
			if taken[pod] {
				m.pods = append(m.pods, pod)
				delete(taken, pod) // the same object may be given twice
				continue
			}
			m.problems = append(m.problems, m.conflict(source, pod))
		}
	}
	return m
}

// holds counts the claims that are a source's.
func holds(held map[claim]string, source string, claims [2]claim) (n int) {
	for _, c := range claims {
		if held[c] == source {
			n++
		}
	}
	return n
}

// conflict says which source has what pod should have.
func (m *merged) conflict(source string, pod *corev1.Pod) Problem {
	var errs fieldErrors
	for i, path := range []*field.Path{field.NewPath("metadata", "uid"), field.NewPath("metadata", "name")} {
		holder := m.held[claims(pod)[i]]
		if holder == "" {
			continue
		}
		value := string(pod.UID)
		if i == 1 {
			value = pod.Namespace + "/" + pod.Name
		}
		err := field.Duplicate(path, value)
		err.Detail = fmt.Sprintf("source %s has it", holder)
		errs = append(errs, err)
	}
	return Problem{File: source, Err: errs}
}
