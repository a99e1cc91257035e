package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/fakecri"
)

// featured is a runtime with the feature SupplementalGroupsPolicy.
type featured struct{ *fakecri.Node }

func (f featured) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	answer, err := f.Node.Status(ctx, verbose)
	if err == nil {
		answer.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	}
	return answer, err
}

// Each field of the node's status reaches the API server, and at most 50 images.
func TestNode_FieldsOfTheStatus(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		var images []fakecri.Image
		for i := range 60 {
			images = append(images, fakecri.Image{Name: fmt.Sprintf("demo/image:%d", i)})
		}
		var err error
		b.runtime, err = fakecri.New(fakecri.Config{Images: images})
		require.NoError(b.t, err)
		b.config = func(c *agent.Config) { c.Runtime = featured{b.runtime} }
		b.start()
		after(time.Minute)
		s := b.node().Status
		require.Len(b.t, s.Images, 50)
		require.Equal(b.t, &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}, s.Features)
		require.Equal(b.t, []string{"RestartAllContainersOnContainerExits"}, s.DeclaredFeatures)
		require.Empty(b.t, s.VolumesInUse)
		var conditions []corev1.NodeConditionType
		for _, c := range s.Conditions {
			conditions = append(conditions, c.Type)
		}
		require.Equal(b.t, []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady}, conditions)
		for _, list := range []corev1.ResourceList{s.Capacity, s.Allocatable} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
				require.Positive(b.t, list.Name(name, "").Value(), name)
			}
		}
		require.Contains(b.t, s.NodeInfo.ContainerRuntimeVersion, "fakecri://")
		s.NodeInfo.ContainerRuntimeVersion = ""
		require.Equal(b.t, corev1.NodeSystemInfo{
			MachineID: "fake", SystemUUID: "fake", BootID: "fake", KernelVersion: "0.0.0-fake", OSImage: "fakecri",
			KubeletVersion: "v1.36.0", OperatingSystem: "linux", Architecture: "amd64",
		}, s.NodeInfo)
	})
}

// While the runtime does not answer and the machine can't be read, the node keeps the values of an
// earlier agent.
func TestNode_UnknownValuesAreKept(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		known := corev1.NodeStatus{
			RuntimeHandlers: []corev1.NodeRuntimeHandler{{Name: "vm"}},
			Features:        &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: "machine", SystemUUID: "system", BootID: "boot", KernelVersion: "6.1", OSImage: "OS", ContainerRuntimeVersion: "runtime://1",
			},
		}
		b.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Status: *known.DeepCopy()})
		b.facts(func(f *host.Facts) { *f = host.Facts{} })
		b.runtime.Restart(time.Hour)
		b.start()
		after(time.Minute)
		s := b.node().Status
		require.Equal(b.t, corev1.ConditionFalse, b.condition(corev1.NodeReady).Status)
		require.Equal(b.t, known.RuntimeHandlers, s.RuntimeHandlers)
		require.Equal(b.t, known.Features, s.Features)
		require.Equal(b.t, known.Addresses, s.Addresses)
		known.NodeInfo.KubeletVersion = "v1.36.0"
		require.Equal(b.t, known.NodeInfo, s.NodeInfo)
		require.Zero(b.t, b.recorded("Rebooted"))
	})
}

// A private image is pulled with a pull secret of the pod.
func TestObjects_ImagePullSecrets(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		var err error
		b.runtime, err = fakecri.New(fakecri.Config{Registry: []fakecri.Image{{Name: "registry.test/web:1", Pull: fakecri.Pull{Username: "jane", Password: "secret"}}}})
		require.NoError(b.t, err)
		pod := newPod("web", "registry.test/web:1")
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		b.put("pods", pod)
		b.start()
		after(5 * time.Second)
		require.Empty(b.t, b.running())
		require.Contains(b.t, b.message("FailedToRetrieveImagePullSecret"), "registry")
		b.put("secrets", &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "registry", Namespace: "default"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.test":{"username":"jane","password":"secret"}}}`)},
		})
		after(time.Minute)
		require.Equal(b.t, []string{"web"}, b.running())
	})
}
