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

// StaticConfig says for which node a [Static] gives pods.
type StaticConfig struct {
	// NodeName and Owner are as in a [DirectoryConfig]. NodeName is required.
	NodeName string
	Owner    string
	// Clock is the time source of the annotation about when a pod was first seen.
	// Default: the system clock.
	Clock clock.PassiveClock
}

// Validate reports every problem with c, joined.
func (c StaticConfig) Validate() error { return errors.Join(checkNodeName(c.NodeName)...) }

// Static gives pods that a program has made, as if they were manifests: with the same
// defaults, checks and identity. Make it with [NewStatic]; all methods are safe for
// concurrent use.
type Static struct {
	cfg  StaticConfig
	loop *loop.Loop

	step   sync.Mutex // guards the pass's fields of answer
	answer answer
}

// NewStatic returns a Static that gives nothing yet, and is unread until Set.
func NewStatic(cfg StaticConfig) (*Static, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Static{cfg: cfg, loop: loop.New(clock.RealClock{})}, nil
}

// Run calls set with the pods of the first [Static.Set], and then with each set of pods
// that differs from the one before, until ctx is done; then it returns nil. Sets that come
// faster than set returns are skipped but for the last. Set is called in Run's goroutine
// and must modify neither the slice nor the pods. A second Run beside the first returns
// [ErrRunning].
func (s *Static) Run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	told := 0
	return s.loop.Run(ctx, func(ctx context.Context) time.Duration {
		s.step.Lock()
		generation, pods := s.answer.generation, s.Pods()
		s.step.Unlock()
		if generation != told {
			set(ctx, pods)
			told = generation
		}
		return time.Hour // Set triggers it
	})
}

// Set replaces all pods. They are copied. If anything is wrong with any of
// them nothing changes, and the error joins a [Problem] for each bad one, whose
// Document is its place in pods, counted from 1.
func (s *Static) Set(pods []*corev1.Pod) error {
	f, err := s.decode(pods)
	if err != nil {
		return err
	}
	s.step.Lock()
	defer s.step.Unlock()
	s.answer.resolve([]*file{f}, s.cfg.Clock.Now())
	s.loop.Trigger()
	return nil
}

// decode makes pods what the manifests of a file are.
func (s *Static) decode(pods []*corev1.Pod) (*file, error) {
	of := origin{source: SourceStatic, node: s.cfg.NodeName, owner: s.cfg.Owner}
	f := new(file)
	for i, pod := range pods {
		m := manifest{file: SourceStatic, document: i + 1}
		if pod == nil {
			f.problems = append(f.problems, Problem{File: m.file, Document: m.document, Err: errors.New("there is no pod")})
			continue
		}
		m.pod = pod.DeepCopy()
		if errs := completePod(m.pod, of); len(errs) > 0 {
			f.problems = append(f.problems, Problem{File: m.file, Document: m.document, Err: fieldErrors(errs)})
			continue
		}
		f.manifests = append(f.manifests, m)
	}
	problems := choose([]*file{f}).problems // of single pods, and of two of one name
	if len(problems) == 0 {
		return f, nil
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return nil, errors.Join(errs...)
}

// Pods returns what there is: those of the last Set that succeeded. They are shared
// and must not be modified.
func (s *Static) Pods() []*corev1.Pod { return s.answer.result(0).Pods }
