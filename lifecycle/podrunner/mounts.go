package podrunner

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const etcHostsPath = "/etc/hosts"

// mounts returns the container's mounts in this order: the mounts of its
// Injection, its volumes, its hosts file and its termination message file. If
// two mounts have the same path, the later mount hides the earlier mount.
func mounts(pod *corev1.Pod, c *corev1.Container, in Instance, node Node, vars *variables) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for _, m := range in.Mounts {
		m = proto.CloneOf(m) // mapMounts modifies the mount
		m.SelinuxRelabel = m.GetSelinuxRelabel() && node.SELinux
		out = append(out, m)
	}
	hosts := in.EtcHosts
	volumes := mounter{pod: pod, container: c, instance: in, node: node, vars: vars}
	for i := range c.VolumeMounts {
		m, err := volumes.mount(i)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
		if c.VolumeMounts[i].MountPath == etcHostsPath {
			hosts = ""
		}
	}
	if hosts != "" {
		out = append(out, &runtimeapi.Mount{ContainerPath: etcHostsPath, HostPath: hosts, SelinuxRelabel: node.SELinux})
	}
	if in.TerminationLog != "" && c.TerminationMessagePath != "" {
		out = append(out, &runtimeapi.Mount{
			ContainerPath: absolute(c.TerminationMessagePath), HostPath: in.TerminationLog, SelinuxRelabel: node.SELinux,
		})
	}
	return out, nil
}

// absolute returns the absolute path of a file in the container. A relative
// path starts at the root of the container.
func absolute(file string) string {
	if path.IsAbs(file) {
		return file
	}
	return path.Join("/", file)
}

// mounter converts a container's volumeMounts to mounts.
type mounter struct {
	pod       *corev1.Pod
	container *corev1.Container
	instance  Instance
	node      Node
	vars      *variables
}

func (v mounter) mount(index int) (*runtimeapi.Mount, error) {
	c, in := v.container, v.instance
	vm := &c.VolumeMounts[index]
	image, hostPath := in.ImageVolumes[vm.Name], in.Volumes[vm.Name]
	if image == nil && hostPath == "" {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
	}
	subPath, err := subPathOf(vm, v.vars)
	if err != nil {
		return nil, err
	}
	m := &runtimeapi.Mount{ContainerPath: absolute(vm.MountPath), Readonly: vm.ReadOnly}
	if image != nil {
		m.Image, m.ImageSubPath, m.Readonly = image, subPath, true
	} else {
		m.HostPath = hostPath
		m.Readonly = m.Readonly || in.ReadOnlyVolumes[vm.Name]
		if volume := volumeNamed(v.pod, vm.Name); volume != nil {
			m.Readonly = m.Readonly || readOnlyVolume(volume)
			m.SelinuxRelabel = v.node.SELinux && volume.HostPath == nil
		}
		if subPath != "" {
			m.HostPath, err = v.prepare(SubPathMount{Container: c.Name, Index: index, Volume: vm.Name, HostPath: hostPath, SubPath: subPath})
			if err != nil {
				return nil, err
			}
		}
	}
	if m.Propagation, err = propagation(vm.MountPropagation); err != nil {
		return nil, err
	}
	if m.RecursiveReadOnly, err = recursiveReadOnly(vm, v.node.features(v.pod).GetRecursiveReadOnlyMounts()); err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	return m, nil
}

// prepare prepares a sub-path of a volume. The text of the error does not
// contain the cause. The text is shown in the pod's status, which must not
// reveal the node's files.
func (v mounter) prepare(m SubPathMount) (string, error) {
	text := fmt.Sprintf("failed to prepare subPath for volumeMount %q of container %q", m.Volume, m.Container)
	if v.instance.SubPath == nil {
		return "", errors.New(text)
	}
	hostPath, err := v.instance.SubPath(m)
	if err != nil {
		return "", &hiddenError{text: text, cause: err}
	}
	return hostPath, nil
}

// hiddenError is an error whose text does not contain the cause. The cause is
// only for logs.
type hiddenError struct {
	text  string
	cause error
}

func (e *hiddenError) Error() string { return e.text }

func (e *hiddenError) Unwrap() error { return e.cause }

func subPathOf(vm *corev1.VolumeMount, vars *variables) (string, error) {
	subPath := vm.SubPath
	if vm.SubPathExpr != "" {
		var err error
		if subPath, err = vars.expandPath(vm.SubPathExpr); err != nil {
			return "", err
		}
	}
	switch {
	case path.IsAbs(subPath):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", subPath)
	case slices.Contains(strings.Split(subPath, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", subPath)
	case strings.ContainsRune(subPath, 0):
		return "", errors.New("unable to provision SubPath: must not contain a zero byte")
	}
	return subPath, nil
}

func propagation(mode *corev1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case corev1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	default:
		return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
	}
}

// recursiveReadOnly reports whether the mounts below a read-only mount must be
// read-only too (KEP-3857).
func recursiveReadOnly(vm *corev1.VolumeMount, supported bool) (bool, error) {
	mode := corev1.RecursiveReadOnlyDisabled
	if vm.RecursiveReadOnly != nil {
		mode = *vm.RecursiveReadOnly
	}
	if mode == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	private := vm.MountPropagation == nil || *vm.MountPropagation == corev1.MountPropagationNone
	switch {
	case mode != corev1.RecursiveReadOnlyIfPossible && mode != corev1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("unknown recursive read-only mode %q", mode)
	case !vm.ReadOnly:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	case !private:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, *vm.MountPropagation)
	case mode == corev1.RecursiveReadOnlyEnabled && !supported:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
	}
	return supported, nil
}

func volumeNamed(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// readOnlyVolume reports whether v is of a type that is always read-only in
// containers. These types are images, and volumes whose contents the agent
// updates.
func readOnlyVolume(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil || v.Image != nil
}

// devices returns the node's devices that the container gets.
func devices(pod *corev1.Pod, c *corev1.Container, in Instance) ([]*runtimeapi.Device, error) {
	out := slices.Clone(in.Devices)
	for _, d := range c.VolumeDevices {
		if !path.IsAbs(d.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		hostPath := in.BlockDevices[d.Name]
		if hostPath == "" {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		permissions := "mrw"
		if v := volumeNamed(pod, d.Name); v != nil && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{ContainerPath: d.DevicePath, HostPath: hostPath, Permissions: permissions})
	}
	return out, nil
}
