package crilabels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Other programs find our containers by these keys, and a kubelet that
// replaces the agent adopts the containers. So the keys must be exactly the
// kubelet's.
func TestKeys_AreTheKubelets(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		crilabels.PodName:                   "io.kubernetes.pod.name",
		crilabels.PodNamespace:              "io.kubernetes.pod.namespace",
		crilabels.PodUID:                    "io.kubernetes.pod.uid",
		crilabels.ContainerName:             "io.kubernetes.container.name",
		crilabels.Hash:                      "io.kubernetes.container.hash",
		crilabels.RestartCount:              "io.kubernetes.container.restartCount",
		crilabels.TerminationMessagePath:    "io.kubernetes.container.terminationMessagePath",
		crilabels.TerminationMessagePolicy:  "io.kubernetes.container.terminationMessagePolicy",
		crilabels.PodTerminationGracePeriod: "io.kubernetes.pod.terminationGracePeriod",
		crilabels.PodDeletionGracePeriod:    "io.kubernetes.pod.deletionGracePeriod",
		crilabels.Agent:                     "io.kubeparts.agent",
		crilabels.Definition:                "io.kubeparts.container.definition",
	} {
		require.Equal(t, want, got)
	}
}

func TestUID(t *testing.T) {
	t.Parallel()
	require.Equal(t, types.UID("u1"), crilabels.UID(map[string]string{"io.kubernetes.pod.uid": "u1"}))
	require.Empty(t, crilabels.UID(map[string]string{"io.kubernetes.pod.name": "web"}))
	require.Empty(t, crilabels.UID(nil))
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	for annotation, want := range map[string]int{
		"3": 3, "0": 0, "": 0, "many": 0, "-1": -1, "3.5": 0, "99999999999999999999": 0,
	} {
		got := crilabels.Restarts(map[string]string{"io.kubernetes.container.restartCount": annotation})
		require.Equal(t, want, got, annotation)
	}
	require.Zero(t, crilabels.Restarts(nil))
}

func TestLogLink(t *testing.T) {
	t.Parallel()
	require.Equal(t, "web_shop_main-c1.log", crilabels.LogLink("shop", "web", "main", "c1"))
	long := strings.Repeat("p", 253)
	require.Equal(t, long[:251]+".log", crilabels.LogLink("shop", long, "main", "c1"), "a name may have 255 characters")
}
