package podsource

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// StaticConfig says for which node a [Static] gives pods.
type StaticConfig struct {
	// NodeName, Owner and Handler are as in a [DirectoryConfig]. NodeName is
	// required. The Handler runs in the goroutine that calls Set.
	NodeName string
	Owner    string
	Handler  func(ctx context.Context, pods []*corev1.Pod)
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
	cfg StaticConfig

	step   sync.Mutex // serialises Set, and is held during the Handler's call
	answer answer
}

// NewStatic returns a Static that gives nothing yet, and is unread until Set.
func NewStatic(cfg StaticConfig) (*Static, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	if cfg.Handler == nil {
		cfg.Handler = func(context.Context, []*corev1.Pod) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Static{cfg: cfg}, nil
}

// Set replaces all pods, and tells the Handler of the first set and of each one that
// differs from the one before. The pods are copied. If anything is wrong with any of
// them nothing changes, and the error joins a [Problem] for each bad one, whose
// Document is its place in pods, counted from 1.
func (s *Static) Set(ctx context.Context, pods []*corev1.Pod) error {
	f, err := s.decode(pods)
	if err != nil {
		return err
	}
	s.step.Lock()
	defer s.step.Unlock()
	before := s.answer.generation
	s.answer.resolve([]*file{f}, s.cfg.Clock.Now())
	if s.answer.generation != before {
		s.cfg.Handler(ctx, s.Pods())
	}
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
