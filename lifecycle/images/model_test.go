package images_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// model decides in the simplest way which pods may use a private image without another pull:
// those whose credentials have ever worked for the image.
type model struct {
	passwords map[string]bool // passwords with which it was pulled
	sources   map[string]bool // Secrets that contained these passwords
	present   bool
	preloaded bool
}

func (m *model) allows(secret, password string) bool {
	return m.present && (m.preloaded || m.passwords[password] || m.sources[secret])
}

// For any sequence of pods with valid and invalid Secrets, changed passwords,
// removed images, and restarts, the same pods get access as in the model.
func TestAccess_AgreesWithTheModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			dir := t.TempDir()
			secrets, passwords := store{}, map[string]string{}
			var s *set
			start := func(old *node) {
				s = newSet(t, func(c *images.Config) { c.Objects, c.State = secrets, state.Files(dir) })
				s.node.registry = private
				if old != nil {
					s.node.present = old.present
				}
			}
			start(nil)
			m := model{passwords: map[string]bool{}, sources: map[string]bool{}}
			for step := range 60 {
				name := fmt.Sprint("key", random.IntN(4))
				switch random.IntN(8) {
				case 0, 1: // the owner of a Secret changes it
					passwords[name] = []string{"right", "wrong", "other"}[random.IntN(3)]
					secrets["default/"+name] = secret(name, "r.io", "me", passwords[name])
				case 2: // garbage collection deletes the image
					s.node.present = nil
					s.clock.Step(10 * time.Minute)
					require.NoError(t, s.Prune(t.Context(), nil))
					m = model{passwords: map[string]bool{}, sources: map[string]bool{}}
				case 3: // the agent restarts
					start(s.node)
				case 4: // another program loads the image
					if !m.present {
						s.node.preload("r.io/web:1")
						m.present, m.preloaded = true, true
					}
				default:
					s.clock.Step(time.Hour) // longer than every back-off
					m.step(t, s, name, passwords[name], step)
				}
			}
		})
	}
}

// step requests the image for a pod with a Secret.
func (m *model) step(t *testing.T, s *set, name, password string, step int) {
	t.Helper()
	asks := pod(fmt.Sprint("pod", step), name)
	if password == "" {
		asks = pod(fmt.Sprint("pod", step)) // without a Secret
		name = ""
	}
	pulls := len(s.node.pulled())
	allowed := m.allows(name, password)
	_, err := s.Ensure(t.Context(), images.Request{Pod: asks, Image: "r.io/web:1", PullPolicy: corev1.PullIfNotPresent})
	require.Equal(t, allowed || password == "right", err == nil, "step %d: %v", step, err)
	if allowed {
		require.Len(t, s.node.pulled(), pulls, "step %d: a pull is unnecessary", step)
		return
	}
	require.Len(t, s.node.pulled(), pulls+1, "step %d", step)
	if err == nil {
		m.present, m.passwords[password], m.sources[name] = true, true, true
	}
}
