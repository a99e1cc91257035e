package containergc

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The kubelet's log manager never shuts its queue down.
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
	)
}

func TestPeer(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // files are created faster in memory than on a disk
	}
	root := t.TempDir()
	judge.Run(t, judge.Peer[*World]{
		Name: "containergc", World: newWorld, Kubelet: newKubelet(t, root).play, Ours: playOurs(root), Rules: rules(), Scenarios: 800,
	})
}
