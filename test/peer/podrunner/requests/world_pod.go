package requests

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// pod draws the pod and its containers.
func (w *world) pod(d *judge.Draw) {
	w.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "prod", UID: "5f1c0a52-6f8e-4c1d-9d8e-0c7a51d3f001",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{},
	}}
	spec := &w.Pod.Spec
	spec.NodeName, spec.ServiceAccountName = "node-1", judge.Pick(d, "default", "robot")
	w.metadata(d)
	spec.RestartPolicy = judge.Pick(d, corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)
	spec.HostNetwork, spec.HostPID, spec.HostIPC = d.Chance(20), d.Chance(15), d.Chance(15)
	spec.ShareProcessNamespace = judge.Maybe(d, 20, func() bool { return !spec.HostPID })
	if !spec.HostNetwork && !spec.HostPID && !spec.HostIPC {
		spec.HostUsers = judge.Maybe(d, 20, func() bool { return d.Chance(25) })
	}
	w.names(d)
	w.dns(d)
	if d.Chance(25) {
		spec.RuntimeClassName = new(rarely(d, 10, "missing", judge.Pick(d, "kata", "plain")))
	}
	w.volumes(d)
	w.podSecurity(d)
	for range d.Int(3) {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: judge.Pick(d, "registry", "missing", "keys", "")})
	}
	if d.Chance(10) {
		spec.EnableServiceLinks = new(false)
	}
	w.containers(d)
	legacyscheme.Scheme.Default(w.Pod) // as the API server and the kubelet's own sources do
	w.podResources(d)
	if source := w.Pod.Annotations["kubernetes.io/config.source"]; source == "" || source == "api" {
		w.Pod.Status.QOSClass = v1qos.ComputePodQOS(w.Pod) // as the API server does
	}
}

func (w *world) containers(d *judge.Draw) {
	spec := &w.Pod.Spec
	for range d.Between(1, 3) {
		spec.Containers = append(spec.Containers, w.container(d, "main-"+string(rune('1'+len(spec.Containers)))))
	}
	if d.Chance(35) {
		for range d.Between(1, 2) {
			c := w.container(d, "init-"+string(rune('1'+len(spec.InitContainers))))
			if d.Chance(50) {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			spec.InitContainers = append(spec.InitContainers, c)
		}
	}
}

func (w *world) metadata(d *judge.Draw) {
	m := &w.Pod.ObjectMeta
	if d.Chance(10) {
		m.Name = "web-" + strings.Repeat("long.", 14) + "name"
	}
	if d.Chance(10) {
		m.Name = strings.Repeat("n", 62) + judge.Pick(d, "-.-tail", "-tail")
	}
	if d.Chance(15) {
		m.Labels["io.kubernetes.pod.name"] = "someone-else"
		m.Labels["tier"] = "front"
	}
	if d.Chance(30) {
		m.Annotations["note"] = "kept as it is"
	}
	if d.Chance(20) {
		m.Annotations["kubernetes.io/config.source"] = judge.Pick(d, "file", "api", "http")
		m.Annotations["kubernetes.io/config.hash"] = "0123"
	}
	if d.Chance(5) {
		m.Annotations["kubernetes.io/config.mirror"] = "0123"
	}
	if d.Chance(10) {
		m.Annotations["container.apparmor.security.beta.kubernetes.io/main-1"] = judge.Pick(d, "runtime/default", "unconfined", "localhost/profile", "odd")
	}
	if d.Chance(8) {
		m.DeletionGracePeriodSeconds = new(int64(45))
	}
	if d.Chance(30) {
		w.Pod.Spec.TerminationGracePeriodSeconds = new(judge.Pick[int64](d, 0, 30, 3600))
	}
	switch d.Int(8) {
	case 1:
		w.Pod.Spec.PriorityClassName = "system-node-critical"
		w.Pod.Spec.Priority = new(int32(2_000_001_000))
	case 2:
		w.Pod.Spec.PriorityClassName = "system-cluster-critical"
		w.Pod.Spec.Priority = new(int32(2_000_000_000))
	case 3: // a static pod, whose priority is not set by an admission plugin
		w.Pod.Spec.PriorityClassName = judge.Pick(d, "system-node-critical", "system-cluster-critical")
	case 4:
		w.Pod.Spec.Priority = new(judge.Pick[int32](d, 1000, 2_000_000_000, 2_000_001_000, 1_999_999_999))
	}
}

func (w *world) names(d *judge.Draw) {
	spec := &w.Pod.Spec
	if d.Chance(25) {
		spec.Hostname = judge.Pick(d, "front", strings.Repeat("h", 63))
	}
	if d.Chance(25) {
		spec.Subdomain = judge.Pick(d, "pool", "pool", "pool", strings.Repeat("s", 30))
	}
	spec.SetHostnameAsFQDN = judge.Maybe(d, 20, func() bool { return !d.Chance(25) })
	if d.Chance(10) && !spec.HostNetwork {
		spec.HostnameOverride = new(judge.Pick(d, "other.example", strings.Repeat("o", 62)+".example"))
	}
	for range max(0, d.Int(5)-2) {
		spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{
			IP: judge.Pick(d, "10.0.0.7", "fd00::7"), Hostnames: judge.Pick(d, []string{"db"}, []string{"db", "db.example"}),
		})
	}
}

func (w *world) dns(d *judge.Draw) {
	spec := &w.Pod.Spec
	spec.DNSPolicy = judge.Pick(d, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone, corev1.DNSClusterFirstWithHostNet)
	none := spec.DNSPolicy == corev1.DNSNone
	if !d.Chance(30) && !none {
		return
	}
	c := &corev1.PodDNSConfig{}
	if none {
		c.Nameservers = []string{"1.2.3.4"}
	}
	for range d.Int(5) {
		c.Nameservers = append(c.Nameservers, judge.Pick(d, "10.96.0.10", "8.8.8.8", "1.2.3.4", "fd00::9", "127.0.0.1"))
	}
	for range d.Int(4) {
		c.Searches = append(c.Searches, judge.Pick(d, "own.example", "svc.cluster.local", "corp.example", ".", strings.Repeat("long.", 60)+"example"))
	}
	for range d.Int(4) {
		o := corev1.PodDNSConfigOption{Name: judge.Pick(d, "ndots", "edns0", "timeout")}
		o.Value = judge.Maybe(d, 60, func() string { return judge.Pick(d, "2", "", "9") })
		c.Options = append(c.Options, o)
	}
	spec.DNSConfig = c
}

func (w *world) volumes(d *judge.Draw) {
	for range d.Int(5) {
		v := corev1.Volume{Name: "vol-" + string(rune('1'+len(w.Pod.Spec.Volumes)))}
		switch d.Int(8) {
		case 0, 7:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		case 1:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}
		case 2:
			v.Secret = &corev1.SecretVolumeSource{SecretName: "keys"}
		case 3:
			v.HostPath = &corev1.HostPathVolumeSource{Path: "/srv/data"}
		case 4:
			v.DownwardAPI = &corev1.DownwardAPIVolumeSource{}
		case 5:
			v.Projected = &corev1.ProjectedVolumeSource{}
		case 6:
			// The default policies are IfNotPresent and Always.
			v.Image = &corev1.ImageVolumeSource{Reference: judge.Pick(d, "registry.example/model:1", "registry.example/data")}
		}
		w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, v)
	}
	if w.Direct && d.Chance(20) {
		w.Pod.Spec.Volumes = append(w.Pod.Spec.Volumes, corev1.Volume{Name: "block", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "block", ReadOnly: d.Chance(40)},
		}})
	}
}

func (w *world) podSecurity(d *judge.Draw) {
	if !d.Chance(60) {
		return
	}
	s := &corev1.PodSecurityContext{}
	w.Pod.Spec.SecurityContext = s
	s.RunAsUser = judge.Maybe(d, 30, func() int64 { return judge.Pick[int64](d, 1000, 0) })
	s.RunAsGroup = judge.Maybe(d, 30, func() int64 { return judge.Pick[int64](d, 2000, 0) })
	s.RunAsNonRoot = judge.Maybe(d, 20, func() bool { return d.Chance(40) })
	s.FSGroup = judge.Maybe(d, 30, func() int64 { return judge.Pick[int64](d, 3000, 0) })
	if d.Chance(30) {
		s.SupplementalGroups = judge.Pick(d, []int64{4000}, []int64{4001, 4000}, []int64{3000})
	}
	s.SupplementalGroupsPolicy = judge.Maybe(d, 25, func() corev1.SupplementalGroupsPolicy {
		return judge.Pick(d, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	})
	if d.Chance(20) {
		s.SELinuxOptions = &corev1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0:c1"}
	}
	s.SeccompProfile = judge.Maybe(d, 30, func() corev1.SeccompProfile { return seccompProfile(d) })
	s.AppArmorProfile = judge.Maybe(d, 25, func() corev1.AppArmorProfile { return appArmorProfile(d) })
	for range max(0, d.Int(5)-2) {
		if sysctl := w.sysctl(d); sysctl.Name != "" {
			s.Sysctls = append(s.Sysctls, sysctl)
		}
	}
}

// sysctl draws a sysctl that the pod may set.
func (w *world) sysctl(d *judge.Draw) corev1.Sysctl {
	names := []string{"kernel.shm_rmid_forced"}
	if w.Pod.Spec.HostIPC {
		names = nil
	}
	if !w.Pod.Spec.HostNetwork {
		names = append(names, "net.ipv4.tcp_syncookies", "net/ipv4/ip_unprivileged_port_start", "net.ipv4.ping_group_range")
	}
	if len(names) == 0 {
		return corev1.Sysctl{}
	}
	return corev1.Sysctl{Name: names[d.Int(len(names))], Value: judge.Pick(d, "1", "0 5000")}
}

func seccompProfile(d *judge.Draw) corev1.SeccompProfile {
	p := corev1.SeccompProfile{Type: judge.Pick(d, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined, corev1.SeccompProfileTypeLocalhost)}
	if p.Type == corev1.SeccompProfileTypeLocalhost {
		p.LocalhostProfile = new(judge.Pick(d, "strict.json", "team/strict.json"))
	}
	return p
}

func appArmorProfile(d *judge.Draw) corev1.AppArmorProfile {
	p := corev1.AppArmorProfile{Type: judge.Pick(d, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined, corev1.AppArmorProfileTypeLocalhost)}
	if p.Type == corev1.AppArmorProfileTypeLocalhost {
		p.LocalhostProfile = new("k8s-strict")
	}
	return p
}

// podResources draws pod-level resources: at least the sum of the containers' requests, and
// at least the limit of each container.
func (w *world) podResources(d *judge.Draw) {
	spec := &w.Pod.Spec
	if d.Chance(25) {
		r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
		asked := helpers.AggregateContainerRequests(w.Pod, helpers.PodResourcesOptions{})
		most := helpers.AggregateContainerLimits(w.Pod, helpers.PodResourcesOptions{})
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			more := judge.Pick(d, "0", "100m", "2")
			if name == corev1.ResourceMemory {
				more = judge.Pick(d, "0", "64Mi", "1G")
			}
			q := resource.MustParse(more)
			q.Add(asked[name])
			limit := most[name].DeepCopy()
			limit.Add(q)
			kind := d.Int(4)
			if kind&1 != 0 && !q.IsZero() {
				r.Requests[name] = q
			}
			if kind&2 != 0 && !limit.IsZero() {
				r.Limits[name] = limit
			}
		}
		if pages := w.Node.HugePages; len(pages) > 0 && len(r.Requests) > 0 && d.Chance(30) {
			name := hugePages(pages[d.Int(len(pages))])
			q := asked[name].DeepCopy()
			q.Add(resource.MustParse("2Gi"))
			r.Requests[name], r.Limits[name] = q, q
		}
		if len(r.Requests)+len(r.Limits) > 0 {
			spec.Resources = &r
		}
	}
	if d.Chance(15) {
		spec.Overhead = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(judge.Pick(d, "250m", "1")), corev1.ResourceMemory: resource.MustParse("120Mi"),
		}
	}
}

// hugePages returns the resource name of the pages that cgroup files call 2MB.
func hugePages(size string) corev1.ResourceName {
	return corev1.ResourceName("hugepages-" + map[string]string{"2MB": "2Mi", "1GB": "1Gi", "64KB": "64Ki"}[size])
}

// resources draws what a container or a pod asks for.
func resources(d *judge.Draw, w *world) (r corev1.ResourceRequirements) {
	r.Requests, r.Limits = corev1.ResourceList{}, corev1.ResourceList{}
	put := func(name corev1.ResourceName, amounts ...string) {
		i := d.Int(len(amounts))
		switch d.Int(5) {
		case 1:
			r.Requests[name] = resource.MustParse(amounts[i])
		case 2:
			r.Limits[name] = resource.MustParse(amounts[i])
		case 3:
			r.Requests[name], r.Limits[name] = resource.MustParse(amounts[i]), resource.MustParse(amounts[i])
		case 4:
			r.Requests[name], r.Limits[name] = resource.MustParse(amounts[0]), resource.MustParse(amounts[i])
		}
	}
	put(corev1.ResourceCPU, "100m", "250m", "1", "2500m", "1m", "300")
	put(corev1.ResourceMemory, "64Mi", "128Mi", "100M", "1Gi", "3G", "12345")
	if d.Chance(20) {
		put(corev1.ResourceEphemeralStorage, "1Gi", "2Gi")
	}
	if len(w.Node.HugePages) > 0 && d.Chance(20) {
		name := hugePages(rarely(d, 4, judge.Pick(d, "1GB", "64KB"), w.Node.HugePages[d.Int(len(w.Node.HugePages))]))
		amount := resource.MustParse(judge.Pick(d, "4Mi", "2Gi"))
		r.Requests[name], r.Limits[name] = amount, amount
	}
	return r
}

// rarely returns odd in the given percentage of cases, otherwise usual.
func rarely[T any](d *judge.Draw, percent int, odd, usual T) T {
	if d.Chance(percent) {
		return odd
	}
	return usual
}
