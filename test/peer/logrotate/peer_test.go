package logrotate

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) {
	// The queue of the kubelet's log manager has no end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"))
}

func TestPeer(t *testing.T) {
	root := t.TempDir()
	judge.Run(t, judge.Peer[*World]{
		Name: "containergc/logrotate", World: newWorld, Kubelet: newKubelet(t, root).play, Ours: playOurs(root), Rules: rules(), Scenarios: 1000,
	})
}
