package config

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPeer(t *testing.T) {
	klog.SetLogger(logr.Discard())
	k := newKubelet(t)
	judge.Run(t, judge.Peer[*world]{
		Name: "config", World: newWorld, Kubelet: k.play, Ours: k.ours, Rules: k.rules(t), Scenarios: 1200,
	})
}
