package podsource

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/capabilities"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPeer(t *testing.T) {
	klog.SetLogger(logr.Discard())
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) // as the kubelet does when it starts
	// A pod that refers to objects of the API is refused by its reference alone, and
	// the rest of it would not be compared. The fact "reference" has that decision.
	require.NoError(t, utilfeature.DefaultMutableFeatureGate.Set("PreventStaticPodAPIReferences=false"))
	judge.Run(t, judge.Peer[*world]{
		Name: "podsource", World: newWorld, Kubelet: kubeletSide, Ours: oursSide, Rules: rules(), Scenarios: 1000,
	})
}
