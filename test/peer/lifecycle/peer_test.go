package lifecycle

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

func TestPeerAdmission(t *testing.T) {
	judge.Run(t, judge.Peer[*world]{
		Name: "lifecycle/admission", World: drawWorld, Kubelet: admitKubelet, Ours: admitOurs, Scenarios: 5000, Rules: admissionRules(),
	})
}

func TestPeerDeadline(t *testing.T) {
	judge.Run(t, judge.Peer[*deadlineWorld]{
		Name: "lifecycle/deadline", World: drawDeadlineWorld, Kubelet: playDeadlineKubelet, Ours: playDeadlineOurs, Scenarios: 5000, Rules: deadlineRules(),
	})
}
