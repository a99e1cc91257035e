package peer

import (
	_ "k8s.io/kubernetes/pkg/kubelet"
	_ "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	_ "k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	_ "k8s.io/kubernetes/pkg/kubelet/server"
	_ "k8s.io/kubernetes/cmd/kubelet/app/options"
	_ "github.com/kubeparts/kubeparts/eviction"
	_ "github.com/kubeparts/kubeparts/lifecycle/podrunner/images"
	_ "github.com/kubeparts/kubeparts/lifecycle/podrunner/volumes"
	_ "github.com/kubeparts/kubeparts/podmanager/podsource"
	_ "github.com/kubeparts/kubeparts/fakecri"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
)
