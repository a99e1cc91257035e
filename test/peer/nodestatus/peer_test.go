package nodestatus

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

func TestPeer(t *testing.T) {
	judge.Run(t, judge.Peer[*World]{
		Name: "status/nodestatus", World: newWorld, Kubelet: playKubelet, Ours: playOurs, Rules: rules(), Scenarios: 2000,
	})
}
