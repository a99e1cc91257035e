package kubeletconfig_test

import (
	"fmt"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
)

func ExampleParse() {
	f, err := kubeletconfig.Parse([]byte(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 30
imageMinimumGCAge: 0s
registerNode: true
`))
	fmt.Println(err, f.Settings.MaxPods, f.Settings.ImageMinimumGCAge.Duration)
	for _, n := range f.Notes {
		fmt.Println(n)
	}

	_, err = kubeletconfig.Parse([]byte(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: many
maxpods: 30
imageGCLowThresholdPercent: 90
`))
	fmt.Println(err)
	// Output:
	// <nil> 30 2m0s
	// line 6: registerNode: ignored: there is no API server
	// line 4: maxPods: want a whole number, got "many"
	// line 5: maxpods: unknown field: did you mean maxPods?
	// line 6: imageGCLowThresholdPercent: 90: want less than imageGCHighThresholdPercent (85)
}
