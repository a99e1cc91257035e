package lifecycle

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is a node and the pods that ask for admission, in this order.
type world struct {
	Node, Fresh *corev1.Node // nil if the lookup fails
	// NoFresh is set if no newer node can be fetched: the known node counts.
	NoFresh bool
	// Silent is set if a failed lookup returns no error. The kubelet's lookup always returns
	// one.
	Silent    bool
	Pods      []*corev1.Pod
	CannotEnd map[string]bool // names of victims whose kill fails
	// Settled is the set of names of pods that our node has admitted before.
	Settled map[string]bool
	// Gaps is set if there are nil pods between the others. The kubelet has no nil pods.
	Gaps bool
}

const (
	node     = "node-a"
	knownExt = "example.com/device"
	otherExt = "example.com/elsewhere"
	fromDRA  = "deviceclass.resource.kubernetes.io/gpu"
)

func drawWorld(d *judge.Draw) *world {
	w := &world{CannotEnd: map[string]bool{}, Settled: map[string]bool{}}
	if !d.Chance(3) {
		w.Node = drawNode(d)
	}
	if !d.Chance(20) {
		w.Fresh = drawNode(d)
	}
	crowded := w.Node != nil && d.Chance(30)
	most := 8
	if crowded {
		most = 14
	}
	// The kubelet reports several insufficient resources of this kind in random order.
	scalar := judge.Pick[corev1.ResourceName](d, knownExt, "hugepages-2Mi", "attachable-volumes-ebs", "kubernetes.io/batch-cpu", "requests.cpu/x", fromDRA)
	bestEffort := false
	for i := range d.Between(1, most) {
		pod := drawPod(d, i, !bestEffort && d.Chance(20), scalar)
		bestEffort = bestEffort || len(pod.Spec.Containers[0].Resources.Requests) == 0
		w.Pods = append(w.Pods, pod)
		w.CannotEnd[pod.Name] = d.Chance(5)
		w.Settled[pod.Name] = d.Chance(10)
	}
	if crowded {
		w.crowd(d)
	}
	w.Gaps, w.Silent, w.NoFresh = d.Chance(20), d.Chance(50), d.Chance(15)
	if d.Chance(4) {
		w.exceed(d)
	}
	return w
}

// exceed sets one amount that overflows in the scheduler: a request of a pod, or an
// allocatable amount of the node.
func (w *world) exceed(d *judge.Draw) {
	name := judge.Pick(d, corev1.ResourceMemory, corev1.ResourceCPU, corev1.ResourceEphemeralStorage)
	pod := w.Pods[d.Int(len(w.Pods))]
	all := judge.Pick(d, pod.Spec.Containers, pod.Spec.InitContainers)
	switch {
	case w.Node != nil && d.Chance(20):
		w.Node.Status.Allocatable[name] = resource.MustParse(tooMuch)
		if w.Fresh != nil {
			w.Fresh.Status.Allocatable[name] = resource.MustParse(tooMuch)
		}
	case len(all) > 0 && len(all[0].Resources.Requests) > 0:
		all[0].Resources.Requests[name] = resource.MustParse(tooMuch)
		delete(all[0].Resources.Limits, name)
	}
}

// tooMuch does not fit into an int64.
const tooMuch = "20E"

// crowd draws a node with many pods. The last pod is critical and needs most of the node, so
// that admission must choose victims.
func (w *world) crowd(d *judge.Draw) {
	w.Node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
	w.Node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("4")
	w.Node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("4Gi")
	w.Node.Spec.Taints = nil
	for i, pod := range w.Pods {
		pod.Spec.NodeName, pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.SecurityContext = node, nil, nil, nil
		if i < len(w.Pods)-1 {
			pod.Spec.Priority, pod.Annotations = nil, nil
			shape(d, pod, i)
			continue
		}
		pod.Spec.Priority = new(int32(2_000_000_000))
		pod.Spec.InitContainers, pod.Spec.Resources = nil, nil
		pod.Spec.Containers = []corev1.Container{{Name: "c0", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(judge.Pick(d, "1", "2", "3", "3500m")), corev1.ResourceMemory: resource.MustParse(judge.Pick(d, "1Gi", "2Gi", "3Gi")),
			corev1.ResourceEphemeralStorage: resource.MustParse(judge.Pick(d, "0", "90Gi", "99Gi")),
		}}}}
	}
}

// shape gives some pods much of one resource and little of another, so that the best match
// for one resource can become unnecessary in the end.
func shape(d *judge.Draw, pod *corev1.Pod, i int) {
	cpu, memory := "1200m", int64(1200)
	switch d.Int(6) {
	case 1:
		cpu, memory = "2500m", 60
	case 2:
		cpu, memory = "100m", 2500
	case 3:
	default:
		return
	}
	pod.Spec.InitContainers, pod.Spec.Resources, pod.Spec.Overhead, pod.Status.QOSClass = nil, nil, nil, ""
	pod.Spec.Containers = []corev1.Container{{Name: "c0", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: *resource.NewQuantity(memory<<20+int64(i+1)<<10, resource.BinarySI),
	}}}}
}

func drawNode(d *judge.Draw) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"zone": judge.Pick(d, "a", "b"), "cores": judge.Pick(d, "8", "16", "many")}}}
	if d.Chance(80) {
		n.Labels[corev1.LabelOSStable] = judge.Pick(d, "linux", "windows")
	}
	if d.Chance(5) {
		n.Labels = nil
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourcePods:             *resource.NewQuantity(int64(judge.Pick(d, 110, 3, 2, 1, 0)), resource.DecimalSI),
		corev1.ResourceCPU:              resource.MustParse(judge.Pick(d, "4", "1500m", "0")),
		corev1.ResourceMemory:           resource.MustParse(judge.Pick(d, "4Gi", "1Gi", "300Mi")),
		corev1.ResourceEphemeralStorage: resource.MustParse(judge.Pick(d, "100Gi", "1Gi")),
	}
	for _, name := range []corev1.ResourceName{knownExt, "hugepages-2Mi", "attachable-volumes-ebs", "kubernetes.io/batch-cpu", "requests.cpu/x"} {
		if d.Chance(60) {
			n.Status.Allocatable[name] = resource.MustParse(judge.Pick(d, "4", "0", "4Mi"))
		}
	}
	for range d.Int(3) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: judge.Pick(d, "dedicated", "cores"), Value: judge.Pick(d, "db", "", "8", "016"),
			Effect: judge.Pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
		})
	}
	if d.Chance(60) {
		n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: judge.Pick(d, nil, new(false), new(true))}
	}
	return n
}

// drawPod draws a pod. Its memory differs from that of all other pods, so that preemption
// never has to choose between equal pods.
func drawPod(d *judge.Draw, i int, bestEffort bool, scalar corev1.ResourceName) *corev1.Pod {
	name := "p" + strconv.Itoa(i)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{}}}
	pod.CreationTimestamp = metav1.Unix(int64(1000+i), 0)
	drawOrigin(d, pod)
	if !bestEffort {
		for c := range d.Between(1, 3) {
			pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(d, fmt.Sprint("c", c), scalar))
		}
		memory := resource.NewQuantity(int64(judge.Pick(d, 50, 150, 400, 900))<<20+int64(i+1)<<10, resource.BinarySI)
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = *memory
		if d.Chance(40) { // the fields that make a pod Guaranteed
			makeGuaranteed(pod)
		}
		for c := range d.Int(3) {
			init := drawContainer(d, fmt.Sprint("i", c), scalar)
			init.RestartPolicy = judge.Pick(d, nil, new(corev1.ContainerRestartPolicyAlways))
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, init)
		}
		drawWhole(d, pod)
	} else {
		pod.Spec.Containers = []corev1.Container{{Name: "c0", Ports: drawPorts(d)}}
	}
	drawPlacement(d, pod)
	drawStatus(d, pod)
	return pod
}

func makeGuaranteed(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, ok := r.Requests[name]; !ok {
				r.Requests[name] = resource.MustParse("1Mi")
			}
		}
		r.Limits = r.Requests.DeepCopy()
	}
}

// drawOrigin draws what makes a pod static, a mirror or critical.
func drawOrigin(d *judge.Draw, pod *corev1.Pod) {
	pod.Spec.Priority = judge.Pick(d, nil, new(int32(0)), new(int32(100)), new(int32(1_999_999_999)), new(int32(2_000_000_000)), new(int32(2_000_001_000)))
	switch {
	case d.Chance(15):
		pod.Annotations["kubernetes.io/config.source"] = judge.Pick(d, "file", "http", "api")
	case d.Chance(5):
		pod.Annotations["kubernetes.io/config.mirror"] = "x"
	}
}

func drawContainer(d *judge.Draw, name string, scalar corev1.ResourceName) corev1.Container {
	c := corev1.Container{Name: name, Ports: drawPorts(d)}
	c.Resources.Requests, c.Resources.Limits = corev1.ResourceList{}, corev1.ResourceList{}
	for _, r := range []struct {
		name    corev1.ResourceName
		percent int
		amounts []string
	}{
		{corev1.ResourceCPU, 60, []string{"100m", "700m", "2", "1u", "0"}},
		{corev1.ResourceEphemeralStorage, 20, []string{"100Mi", "2Gi"}},
		{otherExt, 10, []string{"1"}},
		{scalar, 20, []string{"1", "3", "9", "2Mi", "8Mi"}},
	} {
		if d.Chance(r.percent) {
			c.Resources.Requests[r.name] = resource.MustParse(judge.Pick(d, r.amounts...))
		}
		if d.Chance(r.percent / 2) {
			limit := resource.MustParse(judge.Pick(d, r.amounts...))
			c.Resources.Limits[r.name] = limit
			// The API server sets missing requests; a few pods do not come from the API
			// server.
			if _, ok := c.Resources.Requests[r.name]; !ok && !d.Chance(4) {
				c.Resources.Requests[r.name] = limit
			}
		}
	}
	return c
}

func drawPorts(d *judge.Draw) (ports []corev1.ContainerPort) {
	if !d.Chance(15) {
		return nil
	}
	for range d.Between(1, 2) {
		ports = append(ports, corev1.ContainerPort{
			ContainerPort: 80, HostPort: int32(judge.Pick(d, 8080, 0, 8081, 1)), HostIP: judge.Pick(d, "", "10.0.0.1", "10.0.0.2", "0.0.0.0"),
			Protocol: judge.Pick(d, corev1.ProtocolTCP, "", corev1.ProtocolUDP),
		})
	}
	return ports
}

// drawWhole draws overhead and pod-level resources.
func drawWhole(d *judge.Draw, pod *corev1.Pod) {
	if d.Chance(10) {
		pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("8Mi")}
	}
	if d.Chance(10) {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2500m")}}
	}
}

// drawPlacement draws fields that restrict a pod to certain nodes.
func drawPlacement(d *judge.Draw, pod *corev1.Pod) {
	pod.Spec.NodeName = judge.Pick(d, "", node, node, node, node, node, node, "node-b")
	if d.Chance(15) {
		pod.Spec.NodeSelector = map[string]string{"zone": judge.Pick(d, "a", "b")}
	}
	if d.Chance(15) {
		selector := &corev1.NodeSelector{}
		for range d.Int(3) {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, drawTerm(d))
		}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
	}
	for range d.Int(3) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: judge.Pick(d, "dedicated", "cores", ""), Value: judge.Pick(d, "db", "", "4", "9", "09", "+9"),
			Operator: judge.Pick(d, corev1.TolerationOpEqual, "", corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt, "Strange"),
			Effect:   judge.Pick(d, corev1.TaintEffectNoExecute, "", corev1.TaintEffectNoSchedule),
		})
	}
	if d.Chance(6) {
		pod.Labels[corev1.LabelOSStable] = judge.Pick(d, "linux", "windows", "")
	}
	if d.Chance(6) {
		pod.Spec.OS = &corev1.PodOS{Name: judge.Pick(d, corev1.Linux, corev1.Windows)}
	}
	if d.Chance(8) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{
			SupplementalGroupsPolicy: judge.Pick(d, nil, new(corev1.SupplementalGroupsPolicyMerge), new(corev1.SupplementalGroupsPolicyStrict)),
		}
	}
}

func drawTerm(d *judge.Draw) (term corev1.NodeSelectorTerm) {
	for range d.Int(3) {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: judge.Pick(d, "zone", "cores", "missing", "bad key!"), Values: judge.Pick(d, []string{"a"}, []string{"8"}, []string{"a", "b"}, nil),
			Operator: judge.Pick(d, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, "Strange"),
		})
	}
	if d.Chance(20) {
		term.MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{judge.Pick(d, node, "node-b")}}}
	}
	return term
}

// drawStatus draws the resources in a pod's status.
func drawStatus(d *judge.Draw, pod *corev1.Pod) {
	if d.Chance(30) {
		pod.Status.StartTime = new(metav1.Unix(2000, 0))
	}
	if d.Chance(20) {
		for _, c := range pod.Spec.Containers {
			s := corev1.ContainerStatus{Name: c.Name}
			if d.Chance(60) {
				s.AllocatedResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(judge.Pick(d, "100m", "1"))}
			}
			if d.Chance(60) {
				s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(judge.Pick(d, "100m", "1500m"))}}
			}
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
		}
		if d.Chance(30) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: judge.Pick(d, corev1.PodReasonInfeasible, corev1.PodReasonDeferred)}}
		}
	}
	if d.Chance(8) {
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: judge.Pick(d, "c0", "c1"), ResourceName: judge.Pick(d, knownExt, fromDRA), RequestName: "r"},
		}}
	}
}
