package podcache_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/podcache"
)

// model is a simple model of the cache: it stores all writes of every pod, with their times.
type model struct {
	global time.Time
	pods   map[types.UID]*modelPod
}

type modelPod struct {
	status *podcache.Status
	err    error
	fresh  time.Time // freshness without the global time
	held   time.Time // time of the exclusion; zero if the pod is not excluded
}

func (m *model) freshAt(uid types.UID) time.Time {
	p := m.pods[uid]
	if p.held.IsZero() && m.global.After(p.fresh) {
		return m.global
	}
	return p.fresh
}

func (m *model) write(uid types.UID, t time.Time, change func(*modelPod)) bool {
	if t.Before(m.freshAt(uid)) {
		return false
	}
	p := m.pods[uid]
	change(p)
	p.fresh = t
	if !p.held.IsZero() && !t.Before(p.held) {
		p.held = time.Time{}
	}
	return true
}

func (m *model) updateTime(t time.Time, except map[types.UID]bool) {
	if t.Before(m.global) {
		return
	}
	for uid, p := range m.pods {
		fresh := m.freshAt(uid)
		switch {
		case !except[uid]:
			p.held = time.Time{}
		case !p.held.IsZero() || fresh.Before(t):
			p.fresh, p.held = fresh, t
		}
	}
	m.global = t
}

// TestModel runs random histories and compares all that can be read after each step.
// Freshness must never decrease.
func TestModel(t *testing.T) {
	uids := []types.UID{"a", "b", "c", "d"}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, m := podcache.New(), &model{pods: map[types.UID]*modelPod{}}
		for _, uid := range uids {
			m.pods[uid] = &modelPod{}
		}
		now, was := 10, map[types.UID]time.Time{}
		for step := range 40 {
			now += r.IntN(3)
			when, uid := at(now-r.IntN(6)), uids[r.IntN(len(uids))]
			switch r.IntN(5) {
			case 0, 1:
				s := status(uid)
				err := []error{nil, errInspect}[r.IntN(2)]
				want := m.write(uid, when, func(p *modelPod) { p.status, p.err = s, err })
				require.Equal(t, want, c.Set(uid, s, err, when), "seed %d step %d", seed, step)
			case 2:
				m.write(uid, when, func(*modelPod) {})
				c.SetObservedTime(uid, when)
			case 3:
				m.write(uid, when, func(p *modelPod) { p.status, p.err = nil, nil })
				c.Delete(uid, when)
			case 4:
				except, set := []types.UID(nil), map[types.UID]bool{}
				for _, u := range uids {
					if r.IntN(3) == 0 {
						except, set[u] = append(except, u), true
					}
				}
				m.updateTime(when, set)
				c.UpdateTime(when, except...)
			}
			for _, u := range uids {
				got, err := c.Get(u)
				if want := m.pods[u]; want.status != nil {
					require.Same(t, want.status, got, "seed %d step %d pod %s", seed, step, u)
					require.Equal(t, want.err, err, "seed %d step %d pod %s", seed, step, u)
				} else {
					require.Equal(t, &podcache.Status{UID: u}, got, "seed %d step %d pod %s", seed, step, u)
				}
				edge := m.freshAt(u)
				require.False(t, edge.Before(was[u]), "seed %d step %d pod %s: freshness went back", seed, step, u)
				was[u] = edge
				if !edge.IsZero() {
					require.True(t, fresh(t, c, u, edge), "seed %d step %d pod %s", seed, step, u)
				}
				require.False(t, fresh(t, c, u, edge.Add(1)), "seed %d step %d pod %s", seed, step, u)
			}
		}
	}
}
