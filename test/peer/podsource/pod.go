package podsource

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// enums returns the values of enumerated fields, by field name.
func enums() map[string][]string {
	return map[string][]string{
		"restartPolicy": {"Always", "OnFailure", "Never"}, "dnsPolicy": {"Default", "ClusterFirst", "ClusterFirstWithHostNet", "None"},
		"imagePullPolicy": {"Always", "IfNotPresent", "Never"}, "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
		"protocol": {"TCP", "UDP", "SCTP"}, "scheme": {"HTTP", "HTTPS"}, "operator": {"Exists", "Equal", "In", "NotIn", "Gt", "Lt", "DoesNotExist"},
		"effect": {"NoExecute", "NoSchedule", "PreferNoSchedule"}, "action": {"Restart", "RestartAllContainers"},
		"medium": {"Memory", "HugePages", "HugePages-2Mi"}, "mountPropagation": {"None", "HostToContainer", "Bidirectional"},
		"recursiveReadOnly": {"Disabled", "IfPossible", "Enabled"}, "procMount": {"Default", "Unmasked"},
		"fieldPath":           {"metadata.name", "metadata.labels", "metadata.labels['a']", "status.podIP", "status.hostIP", "spec.nodeName", "metadata.annotations['x']", "status.phase"},
		"resource":            {"limits.cpu", "requests.memory", "limits.memory", "limits.hugepages-2Mi", "requests.ephemeral-storage"},
		"resourceName":        {"cpu", "memory"},
		"os":                  {"linux", "windows"},
		"apiVersion":          {"v1", "v2"},
		"fsGroupChangePolicy": {"Always", "OnRootMismatch"}, "supplementalGroupsPolicy": {"Merge", "Strict"},
		"seLinuxChangePolicy": {"MountOption", "Recursive"}, "preemptionPolicy": {"Never", "PreemptLowerPriority"},
		"whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"}, "topologyKey": {"kubernetes.io/hostname"},
		"whenDeleted": {"a"}, "pullPolicy": {"Always", "IfNotPresent", "Never"}, "add": {"NET_ADMIN", "SYS_ADMIN"}, "drop": {"ALL"},
		"accessModes": {"ReadWriteOnce"}, "stopSignal": {"SIGTERM", "SIGUSR1"}, "type": {"RuntimeDefault", "Unconfined", "Localhost", "Directory", "File", "Socket"},
		"image": {"nginx", "nginx:1", "registry.example.com/a/b:2", "nginx@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "Nginx", "a b", "nginx:latest", "localhost:5000/x", "a//b", "nginx:-1", "nginx@sha256:12"},
		"uid":   {"11111111-2222-3333-4444-555555555555", "a_b", "a/b"}, "hostIP": {"10.0.0.1", "::1", "x"}, "nameservers": {"10.0.0.10", "fd00::1", "x"},
		"ip": {"10.0.0.1", "x"}, "restartPolicyRules": {}, "namespace": {"kube-system", "default", "Bad_NS"},
	}
}

// oddImages returns image references that are barely valid or invalid.
func oddImages() []string {
	digits := strings.Repeat("0123456789abcdef", 4)
	return []string{
		"../x", "nginx@sha256:12", "nginx@sha256:" + digits[:63], "nginx@sha256:" + strings.ToUpper(digits), "nginx@" + digits, "nginx:1@sha256:" + digits,
		"nginx:" + strings.Repeat("x", 128), "nginx:" + strings.Repeat("x", 129), "nginx:-1", "nginx:.1", "nginx:_1", "nginx:", "nginx@", "nginx:a b",
		"a__b", "a___b", "a..b", "a--b", "a.-b", "-a", "a-", "a/", "/a", "a//b", "A/b", "A", "localhost/a", "localhost:5000/a", "host:5000/A", "host.x/a", "h_st.x/a",
		"[::1]:5000/a", "a/b/c:1", "é", " nginx", "docker.io/nginx", strings.Repeat("x.", 126) + "y",
	}
}

// drawPod returns a pod that is mostly valid.
func drawPod(d *judge.Draw, name string) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Name = name
	p.Namespace = judge.Pick(d, "", "", "kube-system", "default")
	if d.Chance(15) {
		p.UID = types.UID(judge.Pick(d, "uid-", "11111111-2222-3333-4444-") + name)
		if d.Chance(15) {
			p.UID = "uid-of-several"
		}
	}
	if d.Chance(20) {
		p.Labels = map[string]string{"app": "web"}
		p.Annotations = map[string]string{judge.Pick(d, "example.com/note", "kubernetes.io/config.source", "kubernetes.io/config.hash", "kubernetes.io/config.seen"): "x"}
	}
	p.Spec = corev1.PodSpec{
		RestartPolicy: judge.Pick(d, "", corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
		HostNetwork:   d.Chance(15),
	}
	if d.Chance(20) {
		p.Spec.DNSPolicy = judge.Pick(d, corev1.DNSDefault, corev1.DNSNone, corev1.DNSClusterFirstWithHostNet)
		p.Spec.DNSConfig = judge.Maybe(d, 60, func() corev1.PodDNSConfig { return corev1.PodDNSConfig{Nameservers: []string{"10.0.0.10"}} })
	}
	p.Spec.TerminationGracePeriodSeconds = judge.Maybe(d, 20, func() int64 { return judge.Pick(d, int64(10), 0, 1, -1) })
	p.Spec.ActiveDeadlineSeconds = judge.Maybe(d, 10, func() int64 { return judge.Pick(d, int64(10), 0, 1, -1) })
	p.Spec.Tolerations = drawTolerations(d)
	p.Spec.SecurityContext = judge.Maybe(d, 15, func() corev1.PodSecurityContext {
		return corev1.PodSecurityContext{
			RunAsUser: judge.Maybe(d, 40, func() int64 { return drawID(d) }), FSGroup: judge.Maybe(d, 40, func() int64 { return drawID(d) }),
			RunAsGroup: judge.Maybe(d, 30, func() int64 { return drawID(d) }), SupplementalGroups: []int64{drawID(d)},
		}
	})
	p.Spec.Resources = judge.Maybe(d, 8, func() corev1.ResourceRequirements { return drawResources(d) })
	p.Spec.Volumes = drawVolumes(d)
	if d.Chance(20) {
		for i := range d.Between(1, 2) {
			c := drawContainer(d, "init"+strconv.Itoa(i), p.Spec.Volumes)
			c.RestartPolicy = judge.Maybe(d, 30, func() corev1.ContainerRestartPolicy {
				return judge.Pick(d, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
			})
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	for i := range d.Between(1, 2) {
		p.Spec.Containers = append(p.Spec.Containers, drawContainer(d, "c"+strconv.Itoa(i), p.Spec.Volumes))
	}
	if d.Chance(4) {
		p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = judge.Pick(d, "sa", ""), judge.Pick(d, "", "sa", "other")
	}
	if d.Chance(5) {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Message: "x"}
	}
	if d.Chance(8) {
		drawStopSignal(d, &p.Spec)
	}
	return p
}

// drawStopSignal draws the stop signal of a container, and the operating system on which the
// signal depends.
func drawStopSignal(d *judge.Draw, s *corev1.PodSpec) {
	if d.Chance(85) {
		s.OS = &corev1.PodOS{Name: judge.Pick(d, corev1.Linux, corev1.Linux, corev1.Windows)}
	}
	c := &s.Containers[0]
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	c.Lifecycle.StopSignal = new(judge.Pick(d, corev1.SIGTERM, corev1.SIGUSR1, corev1.SIGKILL, corev1.SIGRTMIN, "SIGNONE"))
}

func drawID(d *judge.Draw) int64 { return judge.Pick(d, int64(1000), 0, -1, 4294967296, 2147483648) }

func drawTolerations(d *judge.Draw) (all []corev1.Toleration) {
	if !d.Chance(15) {
		return nil
	}
	for range d.Between(1, 2) {
		all = append(all, corev1.Toleration{
			Key: judge.Pick(d, "", "a"), Operator: judge.Pick(d, corev1.TolerationOpExists, "", corev1.TolerationOpEqual),
			Effect:            judge.Pick(d, corev1.TaintEffectNoExecute, "", corev1.TaintEffectNoSchedule),
			TolerationSeconds: judge.Maybe(d, 30, func() int64 { return 300 }),
		})
	}
	return all
}

func drawResources(d *judge.Draw) (r corev1.ResourceRequirements) {
	draw := func() corev1.ResourceList {
		l := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if d.Chance(40) {
				l[name] = resource.MustParse(judge.Pick(d, "1", "100m", "2", "64Mi", "0"))
			}
		}
		return l
	}
	if d.Chance(50) {
		r.Limits = draw()
	}
	if d.Chance(50) {
		r.Requests = draw()
	}
	return r
}

func drawVolumes(d *judge.Draw) (all []corev1.Volume) {
	if !d.Chance(35) {
		return nil
	}
	for i := range d.Between(1, 3) {
		v := corev1.Volume{Name: "v" + strconv.Itoa(i)}
		switch judge.Pick(d, 0, 1, 2, 3, 4, 5, 6, 5, 6, 7, 8) {
		case 0: // an emptyDir by default
		case 1:
			v.HostPath = &corev1.HostPathVolumeSource{Path: judge.Pick(d, "/data", "/a/../b", "")}
		case 2:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: judge.Maybe(d, 50, func() resource.Quantity { return resource.MustParse("1Gi") })}
		case 3:
			v.Secret = &corev1.SecretVolumeSource{SecretName: "s", Items: drawItems(d), DefaultMode: drawMode(d)}
		case 4:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Items: drawItems(d), DefaultMode: drawMode(d)}
		case 5:
			v.DownwardAPI = &corev1.DownwardAPIVolumeSource{Items: drawFiles(d), DefaultMode: drawMode(d)}
		case 6:
			v.Projected = drawProjected(d)
		case 7:
			v.RBD = &corev1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDImage: "i"}
		default:
			v.NFS = &corev1.NFSVolumeSource{Server: "nfs", Path: "/x"}
		}
		all = append(all, v)
	}
	return all
}

func drawMode(d *judge.Draw) *int32 {
	return judge.Maybe(d, 30, func() int32 { return judge.Pick(d, int32(0o400), 0o777, 0o1000, -1) })
}

func drawItems(d *judge.Draw) (all []corev1.KeyToPath) {
	if d.Chance(40) {
		all = append(all, corev1.KeyToPath{Key: "k", Path: judge.Pick(d, "p", "a/b", "../p", "/p", ""), Mode: drawMode(d)})
	}
	return all
}

func drawFiles(d *judge.Draw) (all []corev1.DownwardAPIVolumeFile) {
	for range d.Int(3) {
		f := corev1.DownwardAPIVolumeFile{Path: judge.Pick(d, "p", "a/b", "c", "d/e", "../p"), Mode: drawMode(d)}
		if d.Chance(30) {
			f.ResourceFieldRef = &corev1.ResourceFieldSelector{ContainerName: "c0", Resource: "limits.cpu"}
		} else {
			f.FieldRef = &corev1.ObjectFieldSelector{FieldPath: judge.Pick(d, "metadata.labels", "metadata.name", "metadata.annotations", "metadata.uid", "status.podIP"), APIVersion: judge.Pick(d, "", "v1")}
		}
		all = append(all, f)
	}
	return all
}

func drawProjected(d *judge.Draw) *corev1.ProjectedVolumeSource {
	p := &corev1.ProjectedVolumeSource{DefaultMode: drawMode(d)}
	for range d.Between(1, 3) {
		var s corev1.VolumeProjection
		switch d.Int(4) {
		case 0:
			s.DownwardAPI = &corev1.DownwardAPIProjection{Items: drawFiles(d)}
		case 1:
			s.Secret = &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Items: drawItems(d)}
		case 2:
			s.ConfigMap = &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Items: drawItems(d)}
		default:
			s.ServiceAccountToken = &corev1.ServiceAccountTokenProjection{Path: judge.Pick(d, "token", "", "../x"), ExpirationSeconds: judge.Maybe(d, 40, func() int64 { return judge.Pick(d, int64(600), 1) })}
		}
		p.Sources = append(p.Sources, s)
	}
	return p
}

func drawContainer(d *judge.Draw, name string, volumes []corev1.Volume) corev1.Container {
	images := enums()["image"]
	c := corev1.Container{Name: name, Image: images[d.Int(4)]}
	if d.Chance(8) {
		odd := oddImages()
		c.Image = odd[d.Int(len(odd))]
	}
	c.ImagePullPolicy = judge.Pick(d, "", "", corev1.PullAlways, corev1.PullNever)
	c.TerminationMessagePolicy = judge.Pick(d, "", "", corev1.TerminationMessageFallbackToLogsOnError)
	for range max(d.Int(5)-2, 0) {
		c.Ports = append(c.Ports, corev1.ContainerPort{
			Name: judge.Pick(d, "", "http", "a-1"), ContainerPort: judge.Pick(d, int32(80), 8080), HostPort: judge.Pick(d, int32(0), 80, 8080),
			Protocol: judge.Pick(d, "", corev1.ProtocolUDP, corev1.ProtocolTCP), HostIP: judge.Pick(d, "", "", "10.0.0.1"),
		})
	}
	for i := range max(d.Int(6)-3, 0) {
		c.Env = append(c.Env, drawEnv(d, i))
	}
	if d.Chance(8) {
		c.EnvFrom = []corev1.EnvFromSource{{Prefix: judge.Pick(d, "", "P_"), SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
	}
	if d.Chance(25) {
		c.Resources = drawResources(d)
	}
	for i, v := range volumes {
		if d.Chance(60) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/m" + strconv.Itoa(i), SubPath: judge.Pick(d, "", "", "a", "../a", "/a"), ReadOnly: d.Chance(20)})
		}
	}
	c.LivenessProbe = judge.Maybe(d, 12, func() corev1.Probe { return drawProbe(d) })
	c.ReadinessProbe = judge.Maybe(d, 12, func() corev1.Probe { return drawProbe(d) })
	c.StartupProbe = judge.Maybe(d, 8, func() corev1.Probe { return drawProbe(d) })
	c.Lifecycle = judge.Maybe(d, 10, func() corev1.Lifecycle {
		return corev1.Lifecycle{PostStart: judge.Maybe(d, 60, func() corev1.LifecycleHandler { return drawHook(d) }), PreStop: judge.Maybe(d, 60, func() corev1.LifecycleHandler { return drawHook(d) })}
	})
	c.SecurityContext = judge.Maybe(d, 10, func() corev1.SecurityContext {
		return corev1.SecurityContext{RunAsUser: judge.Maybe(d, 50, func() int64 { return drawID(d) }), Privileged: judge.Maybe(d, 30, func() bool { return true }), AllowPrivilegeEscalation: judge.Maybe(d, 20, func() bool { return false })}
	})
	if d.Chance(6) {
		c.RestartPolicy = new(judge.Pick(d, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure))
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    judge.Pick(d, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers),
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: judge.Pick(d, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn), Values: []int32{1, 42}},
		}}
	}
	return c
}

func drawEnv(d *judge.Draw, i int) corev1.EnvVar {
	e := corev1.EnvVar{Name: "E" + strconv.Itoa(i)}
	switch d.Int(5) {
	case 0:
		e.Value = judge.Pick(d, "x", "", "$(E0)")
	case 1:
		e.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: judge.Pick(d, "metadata.name", "status.podIP", "spec.nodeName"), APIVersion: judge.Pick(d, "", "v1")}}
	case 2:
		e.ValueFrom = &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}
	case 3:
		e.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}
	default:
		e.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Key: "k"}}
	}
	return e
}

func drawProbe(d *judge.Draw) corev1.Probe {
	p := corev1.Probe{
		InitialDelaySeconds: judge.Pick(d, int32(0), 5), TimeoutSeconds: judge.Pick(d, int32(0), 1, 30), PeriodSeconds: judge.Pick(d, int32(0), 5),
		SuccessThreshold: judge.Pick(d, int32(0), 0, 1, 2), FailureThreshold: judge.Pick(d, int32(0), 1),
		TerminationGracePeriodSeconds: judge.Maybe(d, 10, func() int64 { return judge.Pick(d, int64(1), 0) }),
	}
	if d.Chance(25) {
		p.GRPC = &corev1.GRPCAction{Port: 90, Service: judge.Maybe(d, 30, func() string { return "s" })}
		return p
	}
	h := drawHook(d)
	p.Exec, p.HTTPGet, p.TCPSocket = h.Exec, h.HTTPGet, h.TCPSocket
	if p.Exec == nil && p.HTTPGet == nil && p.TCPSocket == nil {
		p.Exec = &corev1.ExecAction{Command: []string{"true"}}
	}
	return p
}

func drawHook(d *judge.Draw) (h corev1.LifecycleHandler) {
	port := func() intstr.IntOrString {
		return judge.Pick(d, intstr.FromInt32(80), intstr.FromString("http"), intstr.FromInt32(0))
	}
	switch d.Int(4) {
	case 0:
		h.Exec = &corev1.ExecAction{Command: []string{"true"}}
	case 1:
		h.HTTPGet = &corev1.HTTPGetAction{Path: judge.Pick(d, "", "/x"), Port: port(), Scheme: judge.Pick(d, "", corev1.URISchemeHTTPS)}
		if d.Chance(20) {
			h.HTTPGet.HTTPHeaders = []corev1.HTTPHeader{{Name: judge.Pick(d, "X-A", "bad name"), Value: "v"}}
		}
	case 2:
		h.TCPSocket = &corev1.TCPSocketAction{Port: port()}
	default:
		h.Sleep = &corev1.SleepAction{Seconds: judge.Pick(d, int64(1), 0, 31, -1)}
	}
	return h
}
