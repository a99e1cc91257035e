package eviction

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPeer(t *testing.T) {
	judge.Run(t, judge.Peer[*world]{
		Name: "eviction", World: newWorld, Kubelet: playKubelet, Ours: playOurs, Rules: rules(), Scenarios: 1200,
	})
}

func TestPeerParse(t *testing.T) {
	judge.Run(t, judge.Peer[*settingsWorld]{
		Name: "eviction/parse", World: newSettings, Kubelet: parseKubelet, Ours: parseOurs, Rules: parseRules(), Scenarios: 4000,
	})
}
