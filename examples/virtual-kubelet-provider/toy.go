package provider

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Toy is a Machine whose containers are Go functions.
type Toy struct {
	// Programs contains the program of each image, by image name.
	Programs map[string]Program
	// Changed is called with the pod's UID when a container has ended. Optional.
	Changed func(types.UID)

	mu      sync.Mutex
	count   int
	all     map[string]*process
	running sync.WaitGroup
}

// Program is the program of an image.
type Program struct {
	// Main is the main process of the container and returns the exit code. It should return
	// when ctx is done.
	Main func(ctx context.Context) int32
	// Exec runs a command and returns its exit code. Default: all commands succeed.
	Exec func(command []string, output io.Writer) int32
}

type process struct {
	Container
	uid  types.UID
	main Program
	stop context.CancelFunc
	done chan struct{}
}

// Start runs the image's Main.
func (m *Toy) Start(ctx context.Context, pod *corev1.Pod, c *corev1.Container, restarts int) error {
	program, ok := m.Programs[c.Image]
	if !ok {
		return fmt.Errorf("no program for image %q", c.Image)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	p := &process{
		Container: Container{
			ID: fmt.Sprint(c.Name, "-", m.count), Name: c.Name, Restarts: restarts, Running: true, StartedAt: time.Now(),
		},
		uid: pod.UID, main: program, stop: stop, done: make(chan struct{}),
	}
	if m.all == nil {
		m.all = map[string]*process{}
	}
	m.all[p.ID] = p
	m.running.Go(func() { m.ended(p, program.Main(ctx)) })
	return nil
}

// ended records the end of a process, if no end is recorded yet.
func (m *Toy) ended(p *process, code int32) {
	m.mu.Lock()
	first := p.Running
	if first {
		p.Running, p.ExitCode, p.FinishedAt = false, code, time.Now()
		p.stop()
		close(p.done)
	}
	m.mu.Unlock()
	if first && m.Changed != nil {
		m.Changed(p.uid)
	}
}

// Stop cancels the context of Main. If Main does not return within grace, the container
// counts as killed.
func (m *Toy) Stop(ctx context.Context, id string, grace time.Duration) error {
	m.mu.Lock()
	p, ok := m.all[id]
	m.mu.Unlock()
	if !ok {
		return nil
	}
	p.stop()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		m.ended(p, 137)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Remove deletes a container.
func (m *Toy) Remove(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, id)
	return nil
}

// Exec runs a command in the container's program.
func (m *Toy) Exec(_ context.Context, id string, command []string, output io.Writer) (int32, error) {
	m.mu.Lock()
	p, ok := m.all[id]
	m.mu.Unlock()
	switch {
	case !ok:
		return 0, fmt.Errorf("no container %s", id)
	case p.main.Exec == nil:
		return 0, nil
	}
	return p.main.Exec(command, output), nil
}

// Containers returns the pod's containers.
func (m *Toy) Containers(uid types.UID) (all []Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.all)) {
		if p := m.all[id]; p.uid == uid {
			all = append(all, p.Container)
		}
	}
	return all
}

// Close stops all containers and waits until they have ended.
func (m *Toy) Close() {
	m.mu.Lock()
	for _, p := range m.all {
		p.stop()
	}
	m.mu.Unlock()
	m.running.Wait()
}
