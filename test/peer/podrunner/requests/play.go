package requests

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A player is the part that both sides share: a machine, its files and a clock.
type player struct {
	world *world
	root  string // folder of all files
	facts *recorder
	clock *testingclock.FakeClock
	*machine
}

func newPlayer(t *testing.T, w *world) *player {
	t.Helper()
	root, err := os.MkdirTemp("/dev/shm", "requests") // both sides write files
	if err != nil {
		root, err = os.MkdirTemp("", "requests")
	}
	require.NoError(t, err)
	p := &player{world: w, root: root, facts: &recorder{root: root, direct: w.Direct}, clock: testingclock.NewFakeClock(start)}
	p.machine = newMachine(w, p.facts)
	p.files(t)
	p.facts.begin()
	return p
}

func (p *player) close(t *testing.T) {
	t.Helper()
	require.NoError(t, os.RemoveAll(p.root))
}

func (p *player) ctx(t *testing.T) context.Context {
	t.Helper()
	return t.Context()
}

func (p *player) logs() string { return filepath.Join(p.root, "logs") }

func (p *player) podLogs() string {
	return filepath.Join(p.logs(), fmt.Sprintf("%s_%s_%s", p.world.Pod.Namespace, p.world.Pod.Name, p.world.Pod.UID))
}

func (p *player) podDir() string { return filepath.Join(p.root, "pods", string(p.world.Pod.UID)) }

func (p *player) runtimeService() runtimeService { return runtimeService{machine: p.machine} }

func (p *player) imageService() imageService { return imageService{machine: p.machine} }

// files creates the files that exist before the first turn.
func (p *player) files(t *testing.T) {
	t.Helper()
	write := func(dir, name, text string) {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, name := range p.world.Logs {
		write(filepath.Join(p.podLogs(), p.world.Pod.Spec.Containers[0].Name), name, "")
	}
	require.NoError(t, os.MkdirAll(filepath.Join(p.root, "pods"), 0o755))
	if first := p.world.UserIDs; first != 0 {
		mapping := fmt.Sprintf(`[{"hostId":%d,"containerId":0,"length":65536}]`, first)
		write(p.podDir(), "userns", `{"uidMappings":`+mapping+`,"gidMappings":`+mapping+`}`)
	}
	for i := range p.world.Pod.Spec.Volumes {
		name := p.world.Pod.Spec.Volumes[i].Name
		require.NoError(t, os.MkdirAll(volumePath(p.root, name), 0o755))
		if name == "block" {
			require.NoError(t, os.MkdirAll(filepath.Dir(blockDevice(p.root)), 0o755))
			require.NoError(t, os.Symlink("/dev/null", blockDevice(p.root)))
		}
	}
}

// play plays the steps.
func (p *player) play(t *testing.T, turn func(*testing.T, *corev1.Pod)) (all []judge.Facts) {
	t.Helper()
	for i := range p.world.Steps {
		p.facts.begin()
		p.happen(&p.world.Steps[i], i)
		p.world.pods = append(p.world.pods, p.world.Pod.DeepCopy())
		turn(t, p.world.Pod.DeepCopy())
		p.look(t)
		all = append(all, p.facts.end())
	}
	return all
}

// happen applies the events before a turn.
func (p *player) happen(s *step, index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock.Step(between)
	p.now = p.clock.Now()
	p.faults = s.Faults
	if index > 0 {
		p.endInits()
	}
	for _, c := range p.containers {
		switch {
		case c.status.GetMetadata().GetName() == s.Exits:
			p.end(c, s.Code)
		case s.SandboxDies:
			p.end(c, 137)
		}
	}
	if s.SandboxDies {
		for _, b := range p.sandboxes {
			b.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	}
	spec := &p.world.Pod.Spec
	spec.EphemeralContainers = append(spec.EphemeralContainers, s.Debug...)
	for i := range spec.Containers {
		if spec.Containers[i].Name == s.Resize {
			spec.Containers[i].Resources = s.Resources
		}
	}
	legacyscheme.Scheme.Default(p.world.Pod) // as the API server does with new containers
	p.clock.Step(between)
	p.now = p.clock.Now()
}

// endInits lets the running init containers succeed.
func (p *player) endInits() {
	for i := range p.world.Pod.Spec.InitContainers {
		c := &p.world.Pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil {
			continue
		}
		for _, made := range p.containers {
			if made.status.GetMetadata().GetName() == c.Name {
				p.end(made, 0)
			}
		}
	}
}

// look adds facts about the files that containers have mounted.
func (p *player) look(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	made := slices.Clone(p.containers)
	p.mu.Unlock()
	for _, c := range made {
		if !p.facts.has("create " + c.status.GetMetadata().GetName() + "/sandbox id") {
			continue
		}
		for _, m := range c.status.GetMounts() {
			if m.GetHostPath() == filepath.Join(p.podDir(), "etc-hosts") && !p.world.Direct {
				data, err := os.ReadFile(m.GetHostPath())
				require.NoError(t, err)
				p.facts.set("file etc-hosts", string(data))
				p.mode(t, "file etc-hosts/mode", m.GetHostPath())
			}
			if strings.HasPrefix(m.GetHostPath(), filepath.Join(p.podDir(), "containers")) {
				p.mode(t, "file of the last words of "+c.status.GetMetadata().GetName(), m.GetHostPath())
			}
		}
	}
}

func (p *player) mode(t *testing.T, name, path string) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	p.facts.set(name, fs.FileMode.String(info.Mode()))
}
