package eviction

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A podSpec is a pod, its resource usage, and its termination.
type podSpec struct {
	Pod     *corev1.Pod
	Arrives time.Duration
	Usage   podUsage
	Later   *podUsage // usage from LaterAt on
	LaterAt time.Duration
	Missing []span        // times without figures
	Age     time.Duration // age of its figures
	Kill    killing
}

// A podUsage is the resource usage of a pod. Nil means not measured.
type podUsage struct {
	Memory     *int64
	Processes  *int64
	Containers []containerUsage
	Volumes    []volumeUsage
	Other      int64 // bytes outside of containers and volumes
}

type containerUsage struct {
	Name         string
	Memory       *int64
	Rootfs, Logs *disk
}

type volumeUsage struct {
	Name string
	Disk disk
}

type disk struct{ Bytes, Inodes int64 }

// A killing is the course of an attempt to kill a pod.
type killing struct {
	Takes   time.Duration // until the pod has ended
	Cleanup time.Duration // duration of the cleanup after that
	Fails   int           // number of first attempts that fail
	FailsAt time.Duration // after the start of an attempt
}

const mi = int64(1) << 20

func newPod(d *judge.Draw, i int) podSpec {
	name := string(rune('a' + i))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name), Generation: int64(d.Int(3))},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	p := podSpec{Pod: pod}
	drawPriority(d, pod, i)
	if d.Chance(50) {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(judge.Pick(d, 30, 0, 5, 200)))
	}
	for n := range d.Between(1, 3) {
		pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(d, fmt.Sprintf("c%d", n)))
	}
	if d.Chance(30) {
		for n := range d.Between(1, 3) {
			c := drawContainer(d, fmt.Sprintf("i%d", n))
			if d.Chance(50) {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
	}
	drawVolumes(d, pod)
	if d.Chance(16) {
		pod.Spec.Overhead = drawResources(d, 60)
	}
	if d.Chance(14) {
		r := corev1.ResourceRequirements{Requests: drawResources(d, 60), Limits: drawResources(d, 40)}
		delete(r.Requests, corev1.ResourceEphemeralStorage)
		delete(r.Limits, corev1.ResourceEphemeralStorage)
		defaultRequests(&r)
		pod.Spec.Resources = &r
	}
	if d.Chance(10) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: judge.Pick(d, corev1.ConditionTrue, corev1.ConditionFalse), Reason: "Other",
		}}
	}
	p.Usage = drawUsage(d, pod, i)
	if d.Chance(20) {
		p.Later, p.LaterAt = new(drawUsage(d, pod, i)), time.Duration(d.Between(1, 12))*5*time.Second
	}
	if d.Chance(15) {
		p.Arrives = time.Duration(d.Between(1, 12)) * 5 * time.Second
	}
	if d.Chance(12) {
		p.Missing = drawSpans(d)
	}
	if d.Chance(4) {
		p.Age = judge.Pick(d, 2*time.Minute, 50*time.Minute, 2*time.Hour)
	}
	drawKilling(d, &p.Kill)
	return p
}

// drawPriority makes equal priorities rare: the kubelet sorts pods that are equal in all
// properties in random order.
func drawPriority(d *judge.Draw, pod *corev1.Pod, i int) {
	switch d.Int(10) {
	case 0, 1, 2:
	case 3:
		pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	case 4:
		pod.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
	case 5:
		pod.Spec.Priority = new(judge.Pick[int32](d, 2_000_000_000, 2_000_001_000, 1_999_999_999))
	default:
		pod.Spec.Priority = new(judge.Pick[int32](d, 0, 1000, -1000) + int32(i))
	}
}

func drawContainer(d *judge.Draw, name string) corev1.Container {
	c := corev1.Container{Name: name}
	if d.Chance(60) {
		c.Resources.Requests = drawResources(d, 60)
	}
	if d.Chance(20) {
		c.Resources.Limits = drawResources(d, 60)
	}
	defaultRequests(&c.Resources)
	return c
}

// defaultRequests does what the API server does: it copies a limit without a request to the
// request.
func defaultRequests(r *corev1.ResourceRequirements) {
	for name, q := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = q.DeepCopy()
		}
	}
}

func drawResources(d *judge.Draw, percent int) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if d.Chance(percent) {
			list[name] = resource.MustParse(judge.Pick(d, "64Mi", "1Gi", "0.25Gi", "512Mi", "100M", "1024Mi", "1500m", "3e8"))
			if d.Chance(4) {
				list[name] = resource.MustParse("0")
			}
		}
	}
	return list
}

func drawVolumes(d *judge.Draw, pod *corev1.Pod) {
	if !d.Chance(50) {
		return
	}
	for n := range d.Between(1, 3) {
		v := corev1.Volume{Name: fmt.Sprintf("v%d", n)}
		switch kind := d.Int(9); kind {
		case 5:
			v.HostPath = &corev1.HostPathVolumeSource{Path: "/x"}
		case 6:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{}
		case 7:
			v.Secret = &corev1.SecretVolumeSource{}
		case 8:
			v.GitRepo = &corev1.GitRepoVolumeSource{}
		default:
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
			if kind == 4 {
				v.EmptyDir.Medium = corev1.StorageMediumMemory
			}
			if d.Chance(50) {
				v.EmptyDir.SizeLimit = new(resource.MustParse(judge.Pick(d, "1Gi", "100Mi", "1024Mi", "0", "2G", "0.5Gi")))
			}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	}
}

// drawUsage draws figures whose sums differ between pods, for any choice of summands.
func drawUsage(d *judge.Draw, pod *corev1.Pod, i int) (u podUsage) {
	unique := int64(i + 1)
	if d.Chance(5) {
		unique = 0
	}
	amount := func(unit int64) int64 { return judge.Pick[int64](d, 0, 1, 3, 10, 30)*50*mi + unique*unit }
	first := true // the first container and the first volume make pods differ
	part := func(unit int64) *disk {
		if d.Chance(5) && !first {
			return nil
		}
		if !first {
			unit = 0
		}
		return &disk{Bytes: amount(64 * unit), Inodes: judge.Pick[int64](d, 0, 1, 7, 100, 5000)*100 + unique*unit}
	}
	if !d.Chance(4) {
		u.Memory = new(amount(64))
	}
	if !d.Chance(4) {
		u.Processes = new(judge.Pick[int64](d, 0, 1, 10, 100)*16 + unique)
	}
	names := []string{}
	for _, all := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range all {
			names = append(names, c.Name)
		}
	}
	if d.Chance(8) {
		names = append(names, "debugger")
	}
	for _, name := range names {
		c := containerUsage{Name: name, Rootfs: part(1), Logs: part(16)}
		first = false
		if !d.Chance(5) {
			c.Memory = new(amount(64))
		}
		u.Containers = append(u.Containers, c)
	}
	if d.Chance(30) {
		judge.Shuffle(d, u.Containers)
	}
	for _, v := range pod.Spec.Volumes {
		if !d.Chance(15) {
			u.Volumes = append(u.Volumes, volumeUsage{Name: v.Name, Disk: *orZero(part(256))})
		}
	}
	if d.Chance(30) {
		judge.Shuffle(d, u.Volumes)
	}
	if d.Chance(10) {
		u.Other = 200 * mi
	}
	return u
}

// isWhole reports whether all figures that make pods differ are known.
func (u *podUsage) isWhole() bool {
	return u.Memory != nil && *u.Memory%mi != 0 && u.Processes != nil && *u.Processes%16 != 0
}

func orZero(d *disk) *disk {
	if d == nil {
		return &disk{}
	}
	return d
}

func drawKilling(d *judge.Draw, k *killing) {
	k.Takes = judge.Pick(d, 0, time.Second, 4*time.Second, 9*time.Second)
	k.Cleanup = judge.Pick(d, 0, 0, 2*time.Second, 29500*time.Millisecond, 50*time.Second)
	if d.Chance(12) {
		k.Takes = judge.Pick(d, 15*time.Second, 40*time.Second, 100*time.Second, 10*time.Minute)
	}
	if d.Chance(12) {
		k.Fails, k.FailsAt = judge.Pick(d, 1, 2, 1000), judge.Pick(d, 0, time.Second, 12*time.Second)
	}
}

// usage returns the usage of the pod at a time, and whether it is known.
func (p *podSpec) usage(at time.Duration) (podUsage, bool) {
	if in(p.Missing, at) {
		return podUsage{}, false
	}
	if p.Later != nil && at >= p.LaterAt {
		return *p.Later, true
	}
	return p.Usage, true
}

// recent is usage without figures that our manager treats as too old.
func (p *podSpec) recent(at time.Duration) (podUsage, bool) {
	u, ok := p.usage(at)
	u.Containers = slices.Clone(u.Containers)
	if p.Age > time.Minute {
		u.Memory, u.Processes = nil, nil
	}
	if p.Age > time.Hour {
		u.Volumes, u.Other = nil, 0
	}
	for i := range u.Containers {
		c := &u.Containers[i]
		if p.Age > time.Minute {
			c.Memory = nil
		}
		if p.Age > time.Hour {
			c.Rootfs, c.Logs = nil, nil
		}
	}
	return u, ok
}

// volume returns a volume of the pod by name.
func (p *podSpec) volume(name string) *corev1.Volume {
	for i := range p.Pod.Spec.Volumes {
		if p.Pod.Spec.Volumes[i].Name == name {
			return &p.Pod.Spec.Volumes[i]
		}
	}
	return nil
}

// isLocal reports whether a volume is on the node's disk and is deleted with the pod.
func isLocal(v *corev1.Volume) bool {
	return v != nil && (v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault || v.ConfigMap != nil || v.GitRepo != nil)
}
