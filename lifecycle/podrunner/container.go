package podrunner

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Instance is what one instance of a container takes from elsewhere than its spec.
type Instance struct {
	// Attempt is its restart count.
	Attempt uint32
	// Image is its image as the runtime shows it: what it is called and, for
	// runAsNonRoot and a group without a user, who runs in it. Nil is an image
	// without a name in which root runs.
	Image *runtimeapi.Image
	// PodIPs are its sandbox's addresses, the primary one first.
	PodIPs []string
}

// ContainerConfig returns the CRI configuration of an instance of a container of
// the pod. It is pure; nothing that it is given is changed or kept. The error
// names the field that can't be met.
func ContainerConfig(pod *corev1.Pod, c *corev1.Container, in Instance, node Node) (*runtimeapi.ContainerConfig, error) {
	if err := checkNonRoot(pod, c, in.Image); err != nil {
		return nil, err
	}
	env, err := environment(pod, c, in.PodIPs, node)
	if err != nil {
		return nil, err
	}
	lookup := map[string]string{}
	var envs []*runtimeapi.KeyValue
	for _, e := range env {
		lookup[e.Name] = e.Value
		envs = append(envs, keyValue(e))
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: in.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: in.Image.GetId(), UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, lookup),
		Args:        expandAll(c.Args, lookup),
		WorkingDir:  c.WorkingDir,
		Envs:        envs,
		Labels:      containerLabels(pod, c, node.Agent),
		Annotations: containerAnnotations(pod, c, in.Attempt),
		LogPath:     containerLogPath(c.Name, in.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       linuxResources(pod, c, node.MemoryCapacityBytes),
			SecurityContext: containerSecurity(pod, c, in.Image),
		},
	}, nil
}

func keyValue(e corev1.EnvVar) *runtimeapi.KeyValue {
	kv := &runtimeapi.KeyValue{Key: e.Name}
	setText(&kv.Value, e.Value)
	return kv
}

// setText sets a field that is a string in cri-api v0.36 and bytes in v0.37.
func setText[T ~string | ~[]byte](field *T, text string) { *field = T(text) }

func containerLabels(pod *corev1.Pod, c *corev1.Container, agent string) map[string]string {
	return map[string]string{
		crilabels.PodName:       pod.Name,
		crilabels.PodNamespace:  pod.Namespace,
		crilabels.PodUID:        string(pod.UID),
		crilabels.ContainerName: c.Name,
		crilabels.Agent:         agent,
	}
}

func containerAnnotations(pod *corev1.Pod, c *corev1.Container, attempt uint32) map[string]string {
	annotations := map[string]string{
		crilabels.Hash:                     podspec.ContainerHash(c),
		crilabels.RestartCount:             strconv.FormatUint(uint64(attempt), 10),
		crilabels.TerminationMessagePath:   c.TerminationMessagePath,
		crilabels.TerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		annotations[crilabels.PodTerminationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		annotations[crilabels.PodDeletionGracePeriod] = strconv.FormatInt(*g, 10)
	}
	return annotations
}

// environment resolves the container's variables in order: a value may name
// those before it.
func environment(pod *corev1.Pod, c *corev1.Container, podIPs []string, node Node) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	known := map[string]string{}
	for _, e := range c.Env {
		value := expand(e.Value, known)
		if e.ValueFrom != nil {
			var err error
			if value, err = fieldValue(e.ValueFrom.FieldRef, pod, podIPs, node); err != nil {
				return nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
		}
		known[e.Name] = value
		env = append(env, corev1.EnvVar{Name: e.Name, Value: value})
	}
	return env, nil
}

// linuxResources turns requests and limits into what a cgroup takes: shares of
// 1024 a core, from 2 to 262144; a quota in each 100 ms period, at least 1 ms.
func linuxResources(pod *corev1.Pod, c *corev1.Container, memoryCapacity int64) *runtimeapi.LinuxContainerResources {
	const (
		minShares, maxShares, sharesPerCore = 2, 262_144, 1024
		period, minQuota, maxMilli          = 100_000, 1000, 1 << 40 // more would overflow
	)
	requests, limits := c.Resources.Requests, c.Resources.Limits
	res := &runtimeapi.LinuxContainerResources{
		CpuShares:          minShares,
		MemoryLimitInBytes: limits.Memory().Value(),
		OomScoreAdj:        oomScoreAdj(pod, c, memoryCapacity),
	}
	request := requests.Cpu().MilliValue()
	if _, asked := requests[corev1.ResourceCPU]; !asked {
		request = limits.Cpu().MilliValue()
	}
	res.CpuShares = min(max(minShares, min(request, maxMilli)*sharesPerCore/1000), maxShares)
	if limit := limits.Cpu().MilliValue(); limit > 0 {
		res.CpuPeriod = period
		res.CpuQuota = max(minQuota, min(limit, maxMilli)*period/1000)
	}
	return res
}

// oomScoreAdj follows the kubelet: the kernel kills BestEffort first (1000),
// Guaranteed and node-critical last (-997), and Burstable by how much memory was
// asked for, between 3 and 999.
func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, memoryCapacity int64) int64 {
	const guaranteed, bestEffort, lowest, nodeCritical = -997, 1000, 3, 2_000_001_000
	if p := pod.Spec.Priority; p != nil && *p >= nodeCritical {
		return guaranteed
	}
	switch podspec.QOSClass(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteed
	case corev1.PodQOSBestEffort:
		return bestEffort
	case corev1.PodQOSBurstable:
	}
	if memoryCapacity <= 0 {
		return bestEffort - 1
	}
	asked := min(c.Resources.Requests.Memory().Value(), memoryCapacity)
	adj := bestEffort - bestEffort*asked/memoryCapacity
	return min(max(adj, lowest), bestEffort-1)
}
