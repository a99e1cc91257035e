package requests

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// container draws a container. The pod's volumes are there already.
func (w *world) container(d *judge.Draw, name string) corev1.Container {
	c := corev1.Container{Name: name}
	c.Image = judge.Pick(d, "registry.example/app:1", "registry.example/team/tool:2", "registry.example/web", "private.example/secret:3",
		"registry.example/pinned@sha256:2d4c5f3a9f0b7a1c8e6d5b4a39281706f5e4d3c2b1a0918273645546372819ab", "registry.example/app:1", "registry.example/app:1")
	if d.Chance(4) {
		c.Image = judge.Pick(d, "registry.example/broken:1", "registry.example/unknown:1", "Not//An/Image", "UPPER/case")
	}
	if d.Chance(30) {
		c.ImagePullPolicy = rarely(d, 8, corev1.PullNever, judge.Pick(d, corev1.PullAlways, corev1.PullIfNotPresent))
	}
	c.Command, c.Args = words(d), words(d)
	if d.Chance(20) {
		c.WorkingDir = "/srv"
	}
	c.TTY, c.Stdin, c.StdinOnce = d.Chance(10), d.Chance(10), d.Chance(10)
	w.environment(d, &c)
	w.ports(d, &c)
	c.Resources = resources(d, w)
	w.mounts(d, &c)
	c.SecurityContext = judge.Maybe(d, 60, func() corev1.SecurityContext { return containerSecurity(d) })
	if d.Chance(20) {
		c.TerminationMessagePath = judge.Pick(d, "/tmp/words", "relative/words", "/etc/hosts")
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	w.hooks(d, &c)
	return c
}

func words(d *judge.Draw) (all []string) {
	for range max(0, d.Int(5)-1) {
		all = append(all, judge.Pick(d, "run", "$(A)", "x$(B)y", "$$(A)", "$(MISSING)", "$(COLOR)-$(A)", "$(", "$A $", "$$$(A)", "", "$(P_COLOR)", "$(KUBERNETES_SERVICE_HOST)", "$(A", "$()"))
	}
	return all
}

func (w *world) environment(d *judge.Draw, c *corev1.Container) {
	optional := func() *bool { return judge.Maybe(d, 30, func() bool { return !d.Chance(25) }) }
	for range max(0, d.Int(5)-2) {
		from := corev1.EnvFromSource{Prefix: judge.Pick(d, "", "P_", "x.")}
		ref := corev1.LocalObjectReference{Name: rarely(d, 3, "missing", "settings")}
		if d.Chance(40) {
			ref.Name = rarely(d, 3, "missing", "keys")
			from.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: optional()}
		} else {
			from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: ref, Optional: optional()}
		}
		c.EnvFrom = append(c.EnvFrom, from)
	}
	for range max(0, d.Int(7)-2) {
		e := corev1.EnvVar{Name: judge.Pick(d, "A", "B", "C", "COLOR", "KUBERNETES_SERVICE_HOST", "with.dot")}
		if d.Chance(50) {
			e.ValueFrom = w.source(d, c.Name, optional)
		} else {
			e.Value = judge.Pick(d, "plain", "", "$(A)", "$(B)$(C)", "$$(A)", "$(COLOR)", "$(DATA_BASE_PORT)", "tail$", "$(UNSET)", "$$$$(A)", "$(P_COLOR)")
		}
		c.Env = append(c.Env, e)
	}
}

func (w *world) source(d *judge.Draw, name string, optional func() *bool) *corev1.EnvVarSource {
	s := &corev1.EnvVarSource{}
	switch d.Int(5) {
	case 0, 4:
		s.FieldRef = &corev1.ObjectFieldSelector{FieldPath: judge.Pick(d, "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
			"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs", "metadata.labels['app']",
			"metadata.annotations['note']", "metadata.labels['none']", "spec.host")}
	case 1:
		s.ResourceFieldRef = &corev1.ResourceFieldSelector{Resource: judge.Pick(d, "limits.cpu", "limits.memory", "requests.cpu", "requests.memory",
			"limits.ephemeral-storage", "requests.ephemeral-storage", "limits.hugepages-2Mi", "requests.hugepages-2Mi")}
		if d.Chance(25) {
			s.ResourceFieldRef.ContainerName = rarely(d, 5, "main-9", "main-1")
		}
		if d.Chance(40) {
			s.ResourceFieldRef.Divisor = resource.MustParse(judge.Pick(d, "1", "1m", "1Mi", "1k"))
		}
	case 2:
		s.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: rarely(d, 3, "missing", "settings")},
			Key:                  rarely(d, 6, "none", judge.Pick(d, "COLOR", "empty", "ref", "multi")), Optional: optional(),
		}
	case 3:
		s.SecretKeyRef = &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: rarely(d, 3, "missing", "keys")},
			Key:                  rarely(d, 6, "none", judge.Pick(d, "TOKEN", "COLOR")), Optional: optional(),
		}
	}
	if !w.Direct && d.Chance(1) && len(w.Pod.Spec.Volumes) > 0 {
		*s = corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: w.Pod.Spec.Volumes[0].Name, Path: "env", Key: "A", Optional: new(true)}}
	}
	return s
}

func (w *world) ports(d *judge.Draw, c *corev1.Container) {
	for range max(0, d.Int(5)-2) {
		p := corev1.ContainerPort{ContainerPort: int32(8000 + d.Int(3)), Protocol: judge.Pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)}
		if d.Chance(50) {
			w.hostPorts++
			p.HostPort = 30000 + w.hostPorts
			p.HostIP = judge.Pick(d, "", "127.0.0.1", "::1")
		}
		if w.Pod.Spec.HostNetwork {
			p.HostPort = p.ContainerPort
		}
		if d.Chance(30) && len(c.Ports) == 0 {
			p.Name = "http"
		}
		c.Ports = append(c.Ports, p)
	}
}

func (w *world) mounts(d *judge.Draw, c *corev1.Container) {
	for i, v := range w.Pod.Spec.Volumes {
		if v.Name == "block" {
			if d.Chance(60) {
				c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: v.Name, DevicePath: judge.Pick(d, "/dev/xvda", "relative")})
			}
			continue
		}
		if d.Chance(35) {
			continue
		}
		m := corev1.VolumeMount{Name: v.Name, MountPath: "/mnt/" + v.Name, ReadOnly: d.Chance(30)}
		if d.Chance(6) {
			m.MountPath = judge.Pick(d, "relative/"+v.Name, "/etc/hosts")
		}
		m.MountPropagation = judge.Maybe(d, 15, func() corev1.MountPropagationMode {
			return judge.Pick(d, corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
		})
		if m.ReadOnly && (m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone) {
			m.RecursiveReadOnly = judge.Maybe(d, 40, func() corev1.RecursiveReadOnlyMode {
				return judge.Pick(d, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyDisabled)
			})
		}
		if (w.Direct || v.Image != nil) && d.Chance(40) {
			if d.Chance(50) {
				m.SubPath = judge.Pick(d, "part", "part/of/it", "a..b")
			} else {
				m.SubPathExpr = judge.Pick(d, "$(A)", "logs/$(COLOR)", "$(MISSING)/x", "$$(A)", "$(A)/../$(B)")
			}
		}
		if i == 3 && d.Chance(3) {
			m.Name = "no-such-volume"
		}
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
}

func containerSecurity(d *judge.Draw) (s corev1.SecurityContext) {
	s.RunAsUser = judge.Maybe(d, 25, func() int64 { return judge.Pick[int64](d, 1001, 0) })
	s.RunAsGroup = judge.Maybe(d, 25, func() int64 { return judge.Pick[int64](d, 2001, 0) })
	s.RunAsNonRoot = judge.Maybe(d, 15, func() bool { return d.Chance(30) })
	s.Privileged = judge.Maybe(d, 20, func() bool { return d.Chance(60) })
	s.ReadOnlyRootFilesystem = judge.Maybe(d, 20, func() bool { return d.Chance(60) })
	s.AllowPrivilegeEscalation = judge.Maybe(d, 25, func() bool { return d.Chance(40) })
	s.ProcMount = judge.Maybe(d, 20, func() corev1.ProcMountType { return judge.Pick(d, corev1.DefaultProcMount, corev1.UnmaskedProcMount) })
	if d.Chance(25) {
		s.Capabilities = &corev1.Capabilities{Add: judge.Pick(d, nil, []corev1.Capability{"NET_ADMIN", "CAP_SYS_TIME"}), Drop: judge.Pick(d, nil, []corev1.Capability{"ALL"})}
	}
	if d.Chance(15) {
		s.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c2", Type: judge.Pick(d, "", "t2")}
	}
	s.SeccompProfile = judge.Maybe(d, 25, func() corev1.SeccompProfile { return seccompProfile(d) })
	s.AppArmorProfile = judge.Maybe(d, 20, func() corev1.AppArmorProfile { return appArmorProfile(d) })
	return s
}

func (w *world) hooks(d *judge.Draw, c *corev1.Container) {
	if !d.Chance(20) {
		return
	}
	c.Lifecycle = &corev1.Lifecycle{}
	if d.Chance(60) {
		c.Lifecycle.PreStop = judge.Pick(d,
			&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep <&>"}}},
			&corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/stop", Port: intstr.FromString("http")}},
			&corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}})
	}
	if d.Chance(50) {
		c.Lifecycle.StopSignal = new(judge.Pick(d, corev1.SIGTERM, corev1.SIGUSR1, corev1.SIGRTMINPLUS1, corev1.SIGRTMAXMINUS14, corev1.SIGKILL, corev1.SIGHUP))
	}
}

// ephemeral draws an ephemeral container for debugging a running container.
func ephemeral(d *judge.Draw, w *world, target string) corev1.EphemeralContainer {
	w.debugging++
	c := w.container(d, "debug-"+strconv.Itoa(w.debugging))
	c.Lifecycle, c.Ports, c.Resources = nil, nil, corev1.ResourceRequirements{}
	e := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)}
	// The API server sets these in a pod. Defaulting a pod does not set them for ephemeral
	// containers that are added later.
	if e.TerminationMessagePath == "" {
		e.TerminationMessagePath, e.TerminationMessagePolicy = corev1.TerminationMessagePathDefault, corev1.TerminationMessageReadFile
	}
	if e.ImagePullPolicy == "" {
		e.ImagePullPolicy = corev1.PullIfNotPresent
		if !strings.ContainsAny(e.Image[strings.LastIndexByte(e.Image, '/')+1:], ":@") {
			e.ImagePullPolicy = corev1.PullAlways
		}
	}
	if d.Chance(60) {
		e.TargetContainerName = judge.Pick(d, target, "main-1", "absent")
	}
	return e
}
