package images_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle/images"
)

func TestObserver_VerdictsRecordsAndWaits(t *testing.T) {
	t.Parallel()
	var verdicts []images.Verdict
	var stored [][2]int
	var waits []images.PullWait
	secrets := store{"default/key": secret("key", "r.io", "me", "right"), "default/broken": {Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{")}}}
	kept := &unreadable{Store: state.Memory()}
	s := newSet(t, func(c *images.Config) {
		c.Objects, c.State = secrets, kept
		c.Observer = images.Observer{
			Verified:       func(v images.Verdict) { verdicts = append(verdicts, v) },
			RecordsChanged: func(intents, pulled int) { stored = append(stored, [2]int{intents, pulled}) },
			Awaited:        func(w images.PullWait) { waits = append(waits, w) },
		}
	})
	s.node.registry = private
	s.node.preload("r.io/old:1")
	ask := func(p *corev1.Pod, image string) error {
		_, err := s.Ensure(t.Context(), images.Request{Pod: p, Image: image})
		return err
	}
	require.NoError(t, ask(pod("owner", "key"), "r.io/web:1"))
	require.Empty(t, verdicts, "without the image, no access check must be reported")
	require.Equal(t, [][2]int{{1, 0}, {0, 1}}, stored)
	require.Len(t, waits, 1)
	require.Equal(t, pod("owner").UID, waits[0].PodUID)
	require.Equal(t, s.clock.Now(), waits[0].Ended)

	require.NoError(t, ask(pod("owner", "key"), "r.io/web:1"))
	require.NoError(t, ask(pod("owner"), "r.io/old:1"))
	require.Error(t, ask(pod("stranger"), "r.io/web:1"))
	require.Error(t, ask(pod("clumsy", "broken"), "r.io/web:1"))
	kept.err = errors.New("the disk is broken")
	require.Error(t, ask(pod("owner", "key"), "r.io/web:1"))
	require.Equal(t, []images.Verdict{
		images.RecordFound, images.PolicyAllowed, images.MustAuthenticate, images.VerificationFailed, images.VerificationFailed,
	}, verdicts)
}

// unreadable is a store whose reads and writes fail while err is set.
type unreadable struct {
	images.Store
	err error
}

// Get returns err if it is set.
func (u *unreadable) Get(ctx context.Context, key string) ([]byte, error) {
	if u.err != nil {
		return nil, u.err
	}
	return u.Store.Get(ctx, key)
}

// Put returns err if it is set.
func (u *unreadable) Put(ctx context.Context, key string, value []byte) error {
	if u.err != nil {
		return u.err
	}
	return u.Store.Put(ctx, key, value)
}
