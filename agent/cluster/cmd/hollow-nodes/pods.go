package main

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	// initCommand replaces the command of init containers, except sidecars. It ends after
	// initRuntime.
	initCommand = "hollow-init"
	initRuntime = time.Second
	// shortRuntime is how long the commands true and false run.
	shortRuntime = 10 * time.Millisecond
)

// A sourceFunc is the Run of an agent.Source.
type sourceFunc = func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error

// hollowed returns a source that defines the pods of source as hollow pods.
func hollowed(source sourceFunc) sourceFunc {
	return func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
		type entry struct{ original, hollow *corev1.Pod }
		known := map[types.UID]entry{} // of the last call, because most pods have not changed since
		return source(ctx, func(ctx context.Context, pods []*corev1.Pod) {
			now := make(map[types.UID]entry, len(pods))
			out := make([]*corev1.Pod, len(pods))
			for i, p := range pods {
				e := known[p.UID]
				if e.original != p {
					e = entry{p, hollowPod(p)}
				}
				now[p.UID], out[i] = e, e.hollow
			}
			known = now
			set(ctx, out)
		})
	}
}

// hollowPod returns a copy of a pod without two kinds of fields: fields that need a real machine,
// such as security contexts, and fields that only a plugin supports, such as persistent volumes.
// ConfigMaps, Secrets, tokens, probes, hooks, and the requests of CPU and memory are kept.
func hollowPod(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	s := &p.Spec
	s.SecurityContext, s.HostUsers, s.RuntimeClassName, s.ResourceClaims = nil, nil, nil, nil
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if v.ConfigMap == nil && v.Secret == nil && v.Projected == nil && v.DownwardAPI == nil {
			v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		hollowContainer(c)
		if !podspec.IsSidecar(c) {
			c.Command, c.Args = []string{initCommand}, nil
		}
	}
	for i := range s.Containers {
		hollowContainer(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		hollowContainer(podspec.Ephemeral(&s.EphemeralContainers[i]))
	}
	return p
}

func hollowContainer(c *corev1.Container) {
	c.SecurityContext, c.VolumeDevices, c.Resources.Claims = nil, nil, nil
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		m.SubPath, m.SubPathExpr, m.MountPropagation, m.RecursiveReadOnly = "", "", nil, nil
	}
	for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name := range list {
			if strings.Contains(string(name), "/") { // an extended resource, such as a GPU
				delete(list, name)
			}
		}
	}
}

// programFor returns the program of a container whose command ends by itself. It returns nil for
// other containers, which run until they are stopped.
func programFor(c *runtimeapi.ContainerConfig) *fakecri.Program {
	command := slices.Concat(c.GetCommand(), c.GetArgs())
	switch {
	case len(command) == 0:
	case command[0] == initCommand:
		return &fakecri.Program{Runtime: initRuntime}
	case command[0] == "true":
		return &fakecri.Program{Runtime: shortRuntime}
	case command[0] == "false":
		return &fakecri.Program{Runtime: shortRuntime, ExitCode: 1}
	case command[0] == "sleep" && len(command) == 2:
		if d, ok := sleepTime(command[1]); ok {
			return &fakecri.Program{Runtime: max(d, shortRuntime)}
		}
	}
	return nil
}

// sleepTime parses the argument of sleep: a number of seconds, or a number with a unit. It returns
// false for any other argument, such as infinity: the command then does not end.
func sleepTime(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	return d, err == nil && d >= 0
}
