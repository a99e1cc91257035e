package podrunner_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func volumesInstance() podrunner.Instance {
	return podrunner.Instance{
		Volumes:      map[string]string{"data": "/pods/uid/data", "conf": "/pods/uid/conf", "host": "/srv"},
		ImageVolumes: map[string]*runtimeapi.ImageSpec{"model": {Image: "model:1"}},
		SubPath: func(m podrunner.SubPathMount) (string, error) {
			if strings.HasPrefix(m.SubPath, "bad") {
				return "", errors.New("/srv/secret: no such thing")
			}
			return path.Join("/sub", m.Volume, m.Container, m.SubPath), nil
		},
		EtcHosts: "/pods/uid/etc-hosts", TerminationLog: "/pods/uid/containers/app/0",
	}
}

func TestMounts(t *testing.T) {
	t.Parallel()
	type vm = corev1.VolumeMount
	const hosts = "; /etc/hosts</pods/uid/etc-hosts relabel"
	recursive := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}
	for name, c := range map[string]struct {
		mount    vm
		features *runtimeapi.RuntimeHandlerFeatures
		want     string
	}{
		"a volume":                            {mount: vm{Name: "data", MountPath: "/data"}, want: "/data</pods/uid/data relabel" + hosts},
		"read only":                           {mount: vm{Name: "data", MountPath: "/data", ReadOnly: true}, want: "/data</pods/uid/data ro relabel" + hosts},
		"a read-only volume":                  {mount: vm{Name: "conf", MountPath: "/conf"}, want: "/conf</pods/uid/conf ro relabel" + hosts},
		"a hostPath volume is not relabelled": {mount: vm{Name: "host", MountPath: "/h"}, want: "/h</srv" + hosts},
		"a relative path":                     {mount: vm{Name: "data", MountPath: "data"}, want: "/data</pods/uid/data relabel" + hosts},
		"over the hosts file":                 {mount: vm{Name: "data", MountPath: "/etc/hosts"}, want: "/etc/hosts</pods/uid/data relabel"},
		"an image":                            {mount: vm{Name: "model", MountPath: "/m", SubPath: "a/b"}, want: "/m<image model:1 a/b ro" + hosts},
		"to the container":                    {mount: vm{Name: "host", MountPath: "/h", MountPropagation: new(corev1.MountPropagationHostToContainer)}, want: "/h</srv PROPAGATION_HOST_TO_CONTAINER" + hosts},
		"both ways":                           {mount: vm{Name: "host", MountPath: "/h", MountPropagation: new(corev1.MountPropagationBidirectional)}, want: "/h</srv PROPAGATION_BIDIRECTIONAL" + hosts},
		"no propagation":                      {mount: vm{Name: "host", MountPath: "/h", MountPropagation: new(corev1.MountPropagationNone)}, want: "/h</srv" + hosts},
		"a part":                              {mount: vm{Name: "host", MountPath: "/h", SubPath: "a/b"}, want: "/h</sub/host/app/a/b" + hosts},
		"a part by a variable":                {mount: vm{Name: "host", MountPath: "/h", SubPathExpr: "$(POD)/$$x"}, want: "/h</sub/host/app/pod/$x" + hosts},
		"recursively": {
			mount: vm{Name: "host", MountPath: "/h", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyEnabled)}, features: recursive, want: "/h</srv ro recursive" + hosts,
		},
		"recursively, if possible": {
			mount: vm{Name: "host", MountPath: "/h", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)}, want: "/h</srv ro" + hosts,
		},
		"not recursively": {
			mount: vm{Name: "host", MountPath: "/h", RecursiveReadOnly: new(corev1.RecursiveReadOnlyDisabled)}, features: recursive, want: "/h</srv" + hosts,
		},

		"no such volume":       {mount: vm{Name: "no", MountPath: "/h"}, want: `error cannot find volume "no" to mount into container "app"`},
		"a part outside":       {mount: vm{Name: "host", MountPath: "/h", SubPath: "a/../../b"}, want: "error unable to provision SubPath `a/../../b`: must not contain '..'"},
		"an absolute part":     {mount: vm{Name: "host", MountPath: "/h", SubPath: "/a"}, want: "error error SubPath `/a` must not be an absolute path"},
		"a part of an image":   {mount: vm{Name: "model", MountPath: "/m", SubPath: ".."}, want: "error unable to provision SubPath `..`: must not contain '..'"},
		"by a variable out":    {mount: vm{Name: "host", MountPath: "/h", SubPathExpr: "$(UP)"}, want: "error unable to provision SubPath `..`: must not contain '..'"},
		"by unknown variables": {mount: vm{Name: "host", MountPath: "/h", SubPathExpr: "$(Z)/$(EMPTY)/$(Z)"}, want: "error missing value for EMPTY, Z"},
		"a zero byte":          {mount: vm{Name: "host", MountPath: "/h", SubPath: "a\x00"}, want: "error unable to provision SubPath: must not contain a zero byte"},
		"its cause is hidden":  {mount: vm{Name: "host", MountPath: "/h", SubPath: "bad"}, want: `error failed to prepare subPath for volumeMount "host" of container "app"`},
		"unheard propagation":  {mount: vm{Name: "host", MountPath: "/h", MountPropagation: new(corev1.MountPropagationMode("x"))}, want: `error invalid MountPropagation mode: "x"`},
		"recursively, but not read only": {
			mount: vm{Name: "host", RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)},
			want:  `error failed to resolve recursive read-only mode: volume "host" requested recursive read-only mode, but it is not read-only`,
		},
		"recursively read-only, with mount propagation": {
			mount: vm{Name: "host", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible), MountPropagation: new(corev1.MountPropagationBidirectional)},
			want:  `error failed to resolve recursive read-only mode: volume "host" requested recursive read-only mode, but it is not compatible with propagation "Bidirectional"`,
		},
		"recursively read-only, without support of the runtime": {
			mount: vm{Name: "host", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyEnabled)},
			want:  `error failed to resolve recursive read-only mode: volume "host" requested recursive read-only mode, but it is not supported by the runtime`,
		},
		"recursively, unheard": {
			mount: vm{Name: "host", RecursiveReadOnly: new(corev1.RecursiveReadOnlyMode("x"))},
			want:  `error failed to resolve recursive read-only mode: unknown recursive read-only mode "x"`,
		},
	} {
		pod, node := testPod(), testNode()
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
		}
		node.SELinux = true
		node.Handler = func(string) *runtimeapi.RuntimeHandlerFeatures { return c.features }
		container := &corev1.Container{
			Name: "app", VolumeMounts: []vm{c.mount},
			Env: []corev1.EnvVar{{Name: "POD", Value: "pod"}, {Name: "UP", Value: ".."}, {Name: "EMPTY"}},
		}
		got, err := podrunner.ContainerConfig(t.Context(), pod, container, volumesInstance(), node)
		require.Equal(t, c.want, shownMounts(got.GetMounts(), err), name)
	}
}

func shownMounts(mounts []*runtimeapi.Mount, err error) string {
	if err != nil {
		return "error " + err.Error()
	}
	var out []string
	for _, m := range mounts {
		text := m.GetContainerPath() + "<" + m.GetHostPath()
		if m.GetImage() != nil {
			text += "image " + m.GetImage().GetImage() + " " + m.GetImageSubPath()
		}
		for flag, set := range map[string]bool{" ro": m.GetReadonly()} {
			if set {
				text += flag
			}
		}
		if m.GetRecursiveReadOnly() {
			text += " recursive"
		}
		if m.GetSelinuxRelabel() {
			text += " relabel"
		}
		if p := m.GetPropagation(); p != runtimeapi.MountPropagation_PROPAGATION_PRIVATE {
			text += " " + p.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func TestMounts_FilesOfTheInstanceAndSubPathErrors(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Name: "app", TerminationMessagePath: "/dev/termination-log"}
	got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, volumesInstance(), testNode())
	require.Equal(t, "/etc/hosts</pods/uid/etc-hosts; /dev/termination-log</pods/uid/containers/app/0", shownMounts(got.GetMounts(), err))
	got, err = podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
	require.Empty(t, shownMounts(got.GetMounts(), err))

	c.VolumeMounts = []corev1.VolumeMount{{Name: "v", SubPath: "a"}}
	_, err = podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{Volumes: map[string]string{"v": "/v"}}, testNode())
	require.EqualError(t, err, `failed to prepare subPath for volumeMount "v" of container "app"`, "without a preparer, the subPath must fail")
	cause := errors.New("cause")
	_, err = podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{
		Volumes: map[string]string{"v": "/v"}, SubPath: func(podrunner.SubPathMount) (string, error) { return "", cause },
	}, testNode())
	require.ErrorIs(t, err, cause, "the cause must be available for logs")
}

// FuzzSubPath searches for an accepted subPath that leads out of a volume.
func FuzzSubPath(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "..", "a/..", "/a", "a//..//b", "./..", "$(A)/..", "$(A)$(A)", "\x00", "...", "a/.."} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, sub, value string) {
		for _, vm := range []corev1.VolumeMount{{Name: "v", SubPath: sub}, {Name: "v", SubPathExpr: sub}} {
			c := &corev1.Container{VolumeMounts: []corev1.VolumeMount{vm}, Env: []corev1.EnvVar{{Name: "A", Value: value}}}
			var prepared *podrunner.SubPathMount
			got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{
				Volumes: map[string]string{"v": "/v"},
				SubPath: func(m podrunner.SubPathMount) (string, error) { prepared = &m; return "/ok", nil },
			}, testNode())
			if err != nil || prepared == nil {
				continue
			}
			require.Equal(t, "/ok", got.GetMounts()[0].GetHostPath())
			clean := path.Join("/v", prepared.SubPath)
			require.True(t, clean == "/v" || strings.HasPrefix(clean, "/v/"), prepared.SubPath)
			require.NotContains(t, strings.Split(prepared.SubPath, "/"), "..")
		}
	})
}

func TestDevices(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Name: "app", VolumeDevices: []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/xvda"}}}
	in := podrunner.Instance{
		BlockDevices: map[string]string{"disk": "/dev/loop0"},
	}
	in.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu0", Permissions: "rw"}}
	in.CDIDevices = []*runtimeapi.CDIDevice{{Name: "vendor/gpu=0"}}
	got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, in, testNode())
	require.NoError(t, err)
	require.Len(t, got.GetDevices(), 2)
	require.Equal(t, "/dev/loop0", got.GetDevices()[1].GetHostPath())
	require.Equal(t, "mrw", got.GetDevices()[1].GetPermissions())
	require.Equal(t, "vendor/gpu=0", got.GetCDIDevices()[0].GetName())
	require.Len(t, in.Devices, 1)

	readOnly := testPod()
	readOnly.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk", ReadOnly: true},
	}}}
	got, err = podrunner.ContainerConfig(t.Context(), readOnly, c, in, testNode())
	require.NoError(t, err)
	require.Equal(t, "r", got.GetDevices()[1].GetPermissions())

	_, err = podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
	require.EqualError(t, err, `cannot find volume "disk" to pass into container "app"`)
	c.VolumeDevices[0].DevicePath = "xvda"
	_, err = podrunner.ContainerConfig(t.Context(), testPod(), c, in, testNode())
	require.EqualError(t, err, "error DevicePath `xvda` must be an absolute path")
}

func TestStopSignal(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.Signal]runtimeapi.Signal{"SIGTERM": 23, "SIGUSR1": 29, "SIGRTMIN+3": 38, "SIGRTMAX-1": 64} {
		c := &corev1.Container{Lifecycle: &corev1.Lifecycle{StopSignal: &name}}
		got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
		require.NoError(t, err)
		require.Equal(t, want, got.GetStopSignal(), name)
	}
	for _, name := range []corev1.Signal{"", "TERM", "RUNTIME_DEFAULT"} {
		c := &corev1.Container{Lifecycle: &corev1.Lifecycle{StopSignal: &name}}
		_, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
		require.ErrorContains(t, err, "is not a signal")
	}
}
