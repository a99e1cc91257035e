package stats_test

import (
	"testing"

	"go.uber.org/goleak"
	cri "k8s.io/cri-api/pkg/apis"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
)

var (
	_ eviction.Stats     = (*stats.Provider)(nil)
	_ eviction.Waker     = (*stats.Provider)(nil)
	_ stats.Runtime      = cri.RuntimeService(nil)
	_ stats.ImageService = cri.ImageManagerService(nil)
	_ stats.Runtime      = (*fakecri.Node)(nil)
	_ stats.ImageService = (*fakecri.Node)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
