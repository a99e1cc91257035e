package podrunner

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
)

// Instance holds what one instance of a container gets in addition to its spec.
// ContainerConfig does not modify an Instance, but the returned configuration
// may share values with it.
type Instance struct {
	// Attempt is the restart count.
	Attempt uint32
	// Image is the image as the runtime reports it. ContainerConfig uses the
	// image's ID and, if the spec sets no user, the image's user. If Image is
	// nil, ContainerConfig assumes an image without an ID that runs as root.
	Image *runtimeapi.Image
	// PodIPs are the addresses of the sandbox, the primary address first.
	PodIPs []string
	// Volumes are the paths of the pod's volumes on the node, by name.
	Volumes map[string]string
	// ReadOnlyVolumes are the names of volumes that are read-only even if a
	// container requests write access. Volumes whose contents the agent updates
	// are always read-only.
	ReadOnlyVolumes map[string]bool
	// ImageVolumes are the images of image volumes, by volume name. The runtime
	// mounts these volumes.
	ImageVolumes map[string]*runtimeapi.ImageSpec
	// BlockDevices are the paths of the node's devices for raw block volumes,
	// by volume name.
	BlockDevices map[string]string
	// SubPath prepares a part of a volume for mounting, and returns the path of
	// this part on the node. The path must lead to a place inside the volume,
	// even if the pod puts links into the volume. [SubPaths.Prepare] implements
	// SubPath. Nil: a mount with a subPath is an error.
	SubPath func(SubPathMount) (hostPath string, err error)
	// EtcHosts is the pod's hosts file on the node (see [EtcHosts]). Empty: the
	// container has the hosts file of the image or of the runtime.
	EtcHosts string
	// TerminationLog is the file on the node that is mounted at the container's
	// terminationMessagePath (see [MakeTerminationLog]). Empty: no file is
	// mounted.
	TerminationLog string
	// TargetID is the ID of the container whose process namespace an ephemeral
	// container shares. Empty: the pod's spec decides about the process
	// namespace.
	TargetID string
	// Injection is what allocators add to the container. The Health of an
	// Injection has no effect here.
	resources.Injection
}

// ContainerConfig returns the CRI configuration of one instance of a container
// of the pod. It is pure if [Instance].SubPath, [Facts].Objects and the
// functions in node are pure. It does not modify its arguments. The error names
// the invalid field in the kubelet's words. Its text is the message of a
// waiting state with the reason CreateContainerConfigError.
func ContainerConfig(ctx context.Context, pod *corev1.Pod, c *corev1.Container, in Instance, node Node) (*runtimeapi.ContainerConfig, error) {
	if err := checkUserNamespace(pod, node); err != nil {
		return nil, err
	}
	devices, err := devices(pod, c, in) // first, as in the kubelet's order of errors
	if err != nil {
		return nil, err
	}
	vars, err := environment(ctx, pod, c, in, node)
	if err != nil {
		return nil, err
	}
	if vars, err = vars.below(in.Env); err != nil {
		return nil, err
	}
	command, args := vars.expandAll(c.Command), vars.expandAll(c.Args)
	if err := vars.fits(); err != nil {
		return nil, err
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: in.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: in.Image.GetId(), UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        keyValues(vars),
		Labels:      containerLabels(pod, c, node.Agent),
		Annotations: containerAnnotations(pod, c, in),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Devices:     devices,
		CDIDevices:  in.CDIDevices,
		Linux:       &runtimeapi.LinuxContainerConfig{},
	}
	if node.LogRoot != "" {
		config.LogPath = containerLogPath(c.Name, in.Attempt)
	}
	if config.Mounts, err = mounts(pod, c, in, node, vars); err != nil {
		return nil, err
	}
	if err := checkNonRoot(pod, c, in.Image); err != nil {
		return nil, err
	}
	if config.StopSignal, err = stopSignal(c); err != nil {
		return nil, err
	}
	if config.Linux.Resources, err = ContainerResources(pod, c, node); err != nil {
		return nil, err
	}
	config.Linux.Resources.CpusetCpus, config.Linux.Resources.CpusetMems = in.CPUs, in.Mems
	if config.Linux.SecurityContext, err = containerSecurity(pod, c, in, node); err != nil {
		return nil, err
	}
	mapMounts(config)
	return config, nil
}

func keyValues(vars *variables) []*runtimeapi.KeyValue {
	var out []*runtimeapi.KeyValue
	for i, name := range vars.names {
		kv := &runtimeapi.KeyValue{Key: name}
		setText(&kv.Value, vars.values[i])
		out = append(out, kv)
	}
	return out
}

// setText sets a field that is a string in cri-api v0.36 and bytes in v0.37.
func setText[T ~string | ~[]byte](field *T, text string) { *field = T(text) }

// stopSignal returns the CRI number of the container's stop signal (KEP-4960);
// zero means the stop signal of the image.
func stopSignal(c *corev1.Container) (runtimeapi.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return 0, nil
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	for _, prefix := range []string{"", "SIGNAL_"} { // the name differs between versions of cri-api
		if number, ok := runtimeapi.Signal_value[prefix+name]; ok && number != 0 {
			return runtimeapi.Signal(number), nil
		}
	}
	return 0, fmt.Errorf("lifecycle.stopSignal: %q is not a signal", *c.Lifecycle.StopSignal)
}

func containerLabels(pod *corev1.Pod, c *corev1.Container, agent string) map[string]string {
	return map[string]string{
		crilabels.PodName:       pod.Name,
		crilabels.PodNamespace:  pod.Namespace,
		crilabels.PodUID:        string(pod.UID),
		crilabels.ContainerName: c.Name,
		crilabels.Agent:         agent,
	}
}

// portsAnnotation contains the ports of the container, as in the kubelet. This
// package reads it to run the preStop hook of a container whose pod object no
// longer exists.
const portsAnnotation = "io.kubernetes.container.ports"

func containerAnnotations(pod *corev1.Pod, c *corev1.Container, in Instance) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, in.Annotations)
	maps.Copy(annotations, map[string]string{
		crilabels.Hash:                     podspec.KubeletHash(c),
		crilabels.Definition:               podspec.ContainerHash(c),
		crilabels.RestartCount:             strconv.FormatUint(uint64(in.Attempt), 10),
		crilabels.TerminationMessagePath:   c.TerminationMessagePath,
		crilabels.TerminationMessagePolicy: string(c.TerminationMessagePolicy),
	})
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		annotations[crilabels.PodTerminationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		annotations[crilabels.PodDeletionGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if l := c.Lifecycle; l != nil && l.PreStop != nil {
		if text, err := json.Marshal(l.PreStop); err == nil {
			annotations[crilabels.PreStopHandler] = string(text)
		}
	}
	if len(c.Ports) > 0 {
		if text, err := json.Marshal(c.Ports); err == nil {
			annotations[portsAnnotation] = string(text)
		}
	}
	return annotations
}
