package imagegc

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPeer(t *testing.T) {
	k := newKubelet(t)
	judge.Run(t, judge.Peer[*World]{
		Name: "imagegc", World: newWorld, Kubelet: k.play, Ours: playOurs, Rules: rules(), Scenarios: 4000,
	})
}
