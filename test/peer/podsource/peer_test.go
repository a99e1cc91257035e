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
	// The kubelet would reject a pod with a reference to an API object only because of the
	// reference, and nothing else would be compared. The fact "reference" contains this
	// decision.
	require.NoError(t, utilfeature.DefaultMutableFeatureGate.Set("PreventStaticPodAPIReferences=false"))
	judge.Run(t, judge.Peer[*world]{
		Name: "podsource", World: newWorld, Kubelet: kubeletSide, Ours: oursSide, Rules: rules(), Scenarios: 1000,
	})
}
