package requests

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// direct makes the configurations of one sync without a Runner: for the containers that the
// kubelet would start, in its order.
func (o *ours) direct(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	node := o.node(t)
	if _, err := o.userIDs.Acquire(pod.UID); pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers && err == nil {
		node.UserNamespace = o.userIDs.Lookup
	}
	node.Agent, node.LogRoot = "peer", o.logs()
	node.CgroupParent = func(pod *corev1.Pod) string {
		parent, _ := podCgroups{o.world.Node}.Ensure(t.Context(), pod, o.world.Node.CFSPeriod)
		return parent
	}
	config := podrunner.SandboxConfig(pod, 0, node)
	if len(o.sandboxes) == 0 {
		if err := podrunner.CheckSandbox(pod, node); err != nil {
			o.facts.event("Warning", "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
			return
		}
		handler, err := podrunner.RuntimeHandler(pod, node)
		require.NoError(t, err)
		_, _ = o.runtimeService().RunPodSandbox(t.Context(), config, handler)
	}
	for c, init := range podspec.Containers(&pod.Spec) {
		if o.made(c.Name) {
			continue
		}
		if o.directContainer(t, pod, c, node, config); init {
			return
		}
	}
}

func (o *ours) made(name string) bool {
	for _, c := range o.containers {
		if c.status.GetMetadata().GetName() == name {
			return true
		}
	}
	return false
}

// directContainer makes the configuration of a container.
func (o *ours) directContainer(t *testing.T, pod *corev1.Pod, c *corev1.Container, node podrunner.Node, config *runtimeapi.PodSandboxConfig) {
	t.Helper()
	in := podrunner.Instance{
		SubPath: func(m podrunner.SubPathMount) (string, error) {
			return preparedSubPath(o.root, m.Container, m.Volume, m.Index, m.SubPath)
		},
		BlockDevices: map[string]string{"block": blockDevice(o.root)}, ImageVolumes: map[string]*runtimeapi.ImageSpec{},
	}
	image, _ := o.world.image(c.Image)
	in.Image = image.status()
	in.Volumes, in.ReadOnlyVolumes, _ = volumes{world: o.world, root: o.root}.Mount(t.Context(), pod)
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil {
			image, _ := o.world.image(v.Image.Reference)
			in.ImageVolumes[v.Name] = &runtimeapi.ImageSpec{Image: image.id(), UserSpecifiedImage: v.Image.Reference, Annotations: pod.Annotations}
		}
	}
	if !pod.Spec.HostNetwork {
		in.PodIPs = o.world.PodIPs
	}
	if c.Name == "main-1" {
		in.Devices, in.CDIDevices = o.devices()
	}
	var err error
	if in.TerminationLog, err = podrunner.MakeTerminationLog(filepath.Join(o.root, "pods"), pod.UID, c.Name, 0); err == nil {
		_, err = podrunner.EtcHosts(pod, in.PodIPs, node)
	}
	in.EtcHosts = filepath.Join(o.podDir(), "etc-hosts")
	made, configErr := podrunner.ContainerConfig(t.Context(), pod, c, in, node)
	if err = errors.Join(err, configErr); err != nil {
		o.facts.set("container "+c.Name+"/reason", podrunner.CreateContainerConfigError)
		o.facts.set("container "+c.Name+"/message", err.Error())
		return
	}
	require.NoError(t, os.MkdirAll(filepath.Join(o.podLogs(), c.Name), 0o755))
	id, err := o.runtimeService().CreateContainer(t.Context(), "sandbox-0", made, config)
	require.NoError(t, err)
	require.NoError(t, o.runtimeService().StartContainer(t.Context(), id))
}

func (o *ours) devices() (devices []*runtimeapi.Device, cdi []*runtimeapi.CDIDevice) {
	for _, d := range o.world.Devices {
		if d.CDI != "" {
			cdi = append(cdi, &runtimeapi.CDIDevice{Name: d.CDI})
			continue
		}
		devices = append(devices, &runtimeapi.Device{HostPath: d.Host, ContainerPath: d.Container, Permissions: d.Permissions})
	}
	return devices, cdi
}
