package resources_test

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

// pinning assigns exclusive CPUs to Guaranteed pods. All other pods share the remaining CPUs,
// and at least one CPU always remains for them.
type pinning struct {
	mu     sync.Mutex
	shared cpuset.CPUSet
	own    map[types.UID]cpuset.CPUSet
}

const ownCPUs = "pinning.example.com/cpus"

func (p *pinning) Name() string { return "pinning" }

func (p *pinning) Restore(_ context.Context, found []*podcache.Status) error {
	for _, pod := range found {
		for _, c := range pod.Containers {
			cpus, err := cpuset.Parse(c.GetAnnotations()[ownCPUs])
			if err != nil {
				return fmt.Errorf("container %s: %w", c.GetId(), err)
			}
			if !cpus.IsEmpty() {
				p.give(pod.UID, cpus)
			}
		}
	}
	return nil
}

func (p *pinning) give(pod types.UID, cpus cpuset.CPUSet) {
	p.own[pod], p.shared = cpus, p.shared.Difference(cpus)
}

func (p *pinning) Admit(_ context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := podspec.Requests(attrs.Pod)
	want := int(asked.Cpu().Value())
	if _, has := p.own[attrs.Pod.UID]; has || podspec.QOSClass(attrs.Pod) != corev1.PodQOSGuaranteed {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	if p.shared.Size() <= want {
		return lifecycle.PodAdmitResult{Reason: "NoFreeCPUs", Message: fmt.Sprintf("want %d of %d shared CPUs, one must stay", want, p.shared.Size())}
	}
	p.give(attrs.Pod.UID, cpuset.New(p.shared.List()[:want]...))
	return lifecycle.PodAdmitResult{Admit: true} // a real allocator also requests a sync of the other pods here
}

func (p *pinning) Container(_ context.Context, r resources.ContainerRequest) (resources.Injection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cpus, has := p.own[r.Pod.UID]; has {
		return resources.Injection{CPUs: cpus.String(), Annotations: map[string]string{ownCPUs: cpus.String()}}, nil
	}
	return resources.Injection{CPUs: p.shared.String()}, nil
}

func (p *pinning) Release(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = p.shared.Union(p.own[pod])
	delete(p.own, pod)
}

// An allocator that pins Guaranteed pods to CPUs. After a restart it restores
// the CPUs of each pod.
func ExampleAllocator() {
	ctx := context.Background()
	p := &pinning{shared: cpuset.New(0, 1, 2, 3), own: map[types.UID]cpuset.CPUSet{}}
	err := p.Restore(ctx, []*podcache.Status{{UID: "old", Containers: []*runtimeapi.ContainerStatus{
		{Id: "c1", Annotations: map[string]string{ownCPUs: "3"}},
	}}})
	fmt.Println("restored:", err)

	inject := resources.Combine(p) // podrunner.Config.Inject
	show := func(pod *corev1.Pod) {
		if verdict := p.Admit(ctx, lifecycle.PodAdmitAttributes{Pod: pod}); !verdict.Admit {
			fmt.Printf("%s is refused: %s\n", pod.Name, verdict.Message)
			return
		}
		got, err := inject(ctx, resources.ContainerRequest{Pod: pod, Container: &pod.Spec.Containers[0]})
		fmt.Println(pod.Name, "gets CPUs", got.CPUs, err)
	}
	show(examplePod("shares", ""))
	show(examplePod("pinned", "2"))
	show(examplePod("shares", ""))
	show(examplePod("greedy", "1"))
	// Output:
	// restored: <nil>
	// shares gets CPUs 0-2 <nil>
	// pinned gets CPUs 0-1 <nil>
	// shares gets CPUs 2 <nil>
	// greedy is refused: want 1 of 1 shared CPUs, one must stay
}

func examplePod(name, cpus string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.UID = name, types.UID(name)
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	if cpus != "" {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}
	}
	return pod
}
