package podworker

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
	judge.Run(t, judge.Peer[*world]{
		Name: "lifecycle/podworker", World: drawWorld, Kubelet: playKubelet, Ours: playOurs, Scenarios: 1000, Rules: rules(), Predict: predict(t),
	})
}
