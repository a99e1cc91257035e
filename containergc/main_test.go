package containergc_test

import (
	"testing"

	"go.uber.org/goleak"
	cri "k8s.io/cri-api/pkg/apis"

	"github.com/kubeparts/kubeparts/containergc"
)

var (
	_ containergc.Runtime = cri.RuntimeService(nil)
	_ containergc.Remover = cri.RuntimeService(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
