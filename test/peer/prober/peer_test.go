package prober

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // the kubelet logs each failure
	goleak.VerifyTestMain(m)
}

func TestPeer(t *testing.T) {
	t.Run("steps", func(t *testing.T) {
		judge.Run(t, judge.Peer[world]{
			Name: "prober/steps", World: drawWorld, Kubelet: playKubelet, Ours: playOurs, Rules: stepRules(), Scenarios: 1400,
		})
	})
	t.Run("http", func(t *testing.T) {
		judge.Run(t, judge.Peer[web]{
			Name: "prober/http", World: drawWeb, Kubelet: playWebKubelet, Ours: playWebOurs, Rules: webRules(), Scenarios: 500,
		})
	})
	t.Run("exec", func(t *testing.T) {
		judge.Run(t, judge.Peer[shell]{
			Name: "prober/exec", World: drawShell, Kubelet: playShell(shellKubelet), Ours: playShell(shellOurs), Rules: shellRules(), Scenarios: 200,
		})
	})
	t.Run("tcp", func(t *testing.T) {
		judge.Run(t, judge.Peer[dial]{
			Name: "prober/tcp", World: drawDial, Kubelet: playDial(dialKubelet), Ours: playDial(dialOurs), Scenarios: 200,
		})
	})
	t.Run("grpc", func(t *testing.T) {
		judge.Run(t, judge.Peer[health]{
			Name: "prober/grpc", World: drawHealth, Kubelet: playHealth(healthKubelet), Ours: playHealth(healthOurs), Rules: healthRules(), Scenarios: 350,
		})
	})
}
