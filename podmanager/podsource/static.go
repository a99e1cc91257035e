package podsource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// StaticConfig configures a [Static].
type StaticConfig struct {
	// NodeName and Owner are as in a [DirectoryConfig]. NodeName is required.
	NodeName string
	Owner    string
	// Clock is the time source for the annotation kubernetes.io/config.seen. Default: the
	// system clock.
	Clock clock.PassiveClock
}

// Validate returns all problems with c as one joined error.
func (c StaticConfig) Validate() error { return errors.Join(checkNodeName(c.NodeName)...) }

// Static delivers pods that a program has created, as if they were manifests: with the same
// defaults, validation and identity. Create it with [NewStatic]; all methods are safe for
// concurrent use.
type Static struct {
	cfg  StaticConfig
	loop *loop.Loop

	step  sync.Mutex // serialises updates of state
	state state
}

// NewStatic returns a Static. Before the first call of [Static.Set], it delivers nothing,
// not even an empty set.
func NewStatic(cfg StaticConfig) (*Static, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Static{cfg: cfg, loop: loop.New(clock.RealClock{})}, nil
}

// Run passes the pods to the callback set after the first [Static.Set], and again whenever
// the pods have changed, until ctx is done; then it returns nil. If [Static.Set] is called
// several times before Run or while the callback runs, Run delivers only the pods of the
// last call.
// The callback runs in the goroutine that called Run, and must modify neither the slice nor
// the pods. A second concurrent Run returns [ErrRunning].
func (s *Static) Run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	delivered := 0
	return s.loop.Run(ctx, func(ctx context.Context) time.Duration {
		s.step.Lock()
		generation, pods := s.state.generation, s.Pods()
		s.step.Unlock()
		if generation != delivered {
			set(ctx, pods)
			delivered = generation
		}
		return time.Hour // Set triggers the next pass
	})
}

// Set replaces all pods with copies of the given pods. If any pod is invalid, nothing
// changes, and the error joins a [Problem] for each invalid pod. The Document of a Problem
// is the position of the pod in the argument, counted from 1.
func (s *Static) Set(pods []*corev1.Pod) error {
	f, err := s.decode(pods)
	if err != nil {
		return err
	}
	s.step.Lock()
	defer s.step.Unlock()
	s.state.update([]*file{f}, s.cfg.Clock.Now())
	s.loop.Trigger()
	return nil
}

// decode converts pods to the manifests of a file.
func (s *Static) decode(pods []*corev1.Pod) (*file, error) {
	of := origin{source: SourceStatic, node: s.cfg.NodeName, owner: s.cfg.Owner}
	f := new(file)
	for i, pod := range pods {
		m := manifest{file: SourceStatic, document: i + 1}
		if pod == nil {
			f.problems = append(f.problems, Problem{File: m.file, Document: m.document, Err: errors.New("the pod is nil")})
			continue
		}
		m.pod = pod.DeepCopy()
		if errs := completePod(m.pod, of); len(errs) > 0 {
			f.problems = append(f.problems, Problem{File: m.file, Document: m.document, Err: fieldErrors(errs)})
			continue
		}
		f.manifests = append(f.manifests, m)
	}
	problems := selectManifests([]*file{f}).problems // invalid pods, duplicate names and UIDs, too many pods
	if len(problems) == 0 {
		return f, nil
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return nil, errors.Join(errs...)
}

// Pods returns the pods of the last successful Set. They are shared and must not be
// modified.
func (s *Static) Pods() []*corev1.Pod { return s.state.result(0).Pods }
