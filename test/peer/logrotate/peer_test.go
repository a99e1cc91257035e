package logrotate

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) {
	// The kubelet's log manager never shuts its queue down.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"))
}

func TestPeer(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // files are synced, which is slow on a disk
	}
	root := t.TempDir()
	judge.Run(t, judge.Peer[*World]{
		Name: "containergc/logrotate", World: newWorld, Kubelet: newKubelet(t, root).play, Ours: playOurs(root), Rules: rules(), Scenarios: 1000,
	})
}
