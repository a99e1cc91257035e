package podmanager

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
	judge.Run(t, judge.Peer[*world]{
		Name: "podmanager", World: newWorld, Kubelet: kubeletSide, Ours: oursSide, Rules: rules(), Scenarios: 1500,
	})
}

func TestPeer_Merge(t *testing.T) {
	klog.SetLogger(logr.Discard())
	judge.Run(t, judge.Peer[*mergeWorld]{
		Name: "podmanager/merge", World: newMergeWorld, Kubelet: kubeletMerge, Ours: ourMerge, Rules: mergeRules(), Scenarios: 1500,
	})
}

func TestPeer_Mirror(t *testing.T) {
	klog.SetLogger(logr.Discard())
	judge.Run(t, judge.Peer[*mirrorWorld]{
		Name: "podmanager/mirror", World: newMirrorWorld, Kubelet: kubeletMirror, Ours: ourMirror, Rules: mirrorRules(), Scenarios: 1500,
	})
}

func TestPeer_Plan(t *testing.T) {
	klog.SetLogger(logr.Discard())
	judge.Run(t, judge.Peer[*planWorld]{
		Name: "podmanager/plan", World: newPlanWorld, Kubelet: kubeletPlan, Ours: ourPlan, Rules: planRules(), Scenarios: 1000,
	})
}
