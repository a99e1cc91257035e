package nodestats_test

import (
	"testing"

	"go.uber.org/goleak"
	cri "k8s.io/cri-api/pkg/apis"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/eviction/nodestats"
	"github.com/kubeparts/kubeparts/fakecri"
)

var (
	_ eviction.Stats         = (*nodestats.Provider)(nil)
	_ eviction.Waker         = (*nodestats.Provider)(nil)
	_ nodestats.Runtime      = cri.RuntimeService(nil)
	_ nodestats.ImageService = cri.ImageManagerService(nil)
	_ nodestats.Runtime      = (*fakecri.Node)(nil)
	_ nodestats.ImageService = (*fakecri.Node)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
