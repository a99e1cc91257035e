package plan

import (
	"flag"
	"io"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a scenario is short and retains no memory
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

func TestPeer(t *testing.T) {
	k, all := newKubelet(t), deviations()
	judge.Run(t, judge.Peer[*World]{
		Name: "podrunner/plan", World: drawWorld, Kubelet: k.play, Ours: k.playOurs, Rules: rules(all), Scenarios: 800,
		Predict: func(sc judge.Scene[*World]) []judge.Prediction { return sc.World.predict(sc.Step, all) },
	})
}
