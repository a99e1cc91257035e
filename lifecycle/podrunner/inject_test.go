package podrunner_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

// ledger returns the same Injection for every container of every pod.
type ledger struct {
	resources.Ledger

	name string
	mu   sync.Mutex
	in   resources.Injection
	err  error
	ids  []string // container IDs in the requests
}

func (l *ledger) Name() string { return l.name }

func (l *ledger) Container(_ context.Context, r resources.ContainerRequest) (resources.Injection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, r.Container.Name+"="+r.ID)
	return l.in, l.err
}

func (l *ledger) asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := l.ids
	l.ids = nil
	return ids
}

func injecting(ledgers ...*ledger) func(*podrunner.Config) {
	return func(c *podrunner.Config) { c.Inject = resources.Combine(ledgers...) }
}

func TestContainerConfig_Injection(t *testing.T) {
	t.Parallel()
	pod, node := testPod(), testNode()
	c := &corev1.Container{
		Name: "app", Env: []corev1.EnvVar{{Name: "OWN", Value: "spec"}, {Name: "LATE", Value: "$(GIVEN)"}},
		Args:         []string{"$(GIVEN) $(OWN)"},
		VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/lib/own"}},
	}
	given := &runtimeapi.Mount{ContainerPath: "/lib/given", HostPath: "/opt/given", SelinuxRelabel: true}
	in := podrunner.Instance{Volumes: map[string]string{"v": "/volumes/v"}, Injection: resources.Injection{
		Devices: []*runtimeapi.Device{{ContainerPath: "/dev/fpga"}}, CDIDevices: []*runtimeapi.CDIDevice{{Name: "acme.example/fpga=1"}},
		Env: map[string]string{"OWN": "allocator", "GIVEN": "1"}, Mounts: []*runtimeapi.Mount{given},
		Annotations: map[string]string{"acme.example/share": "1", "io.kubernetes.container.restartCount": "99"},
		CPUs:        "2-3", Mems: "1",
	}}
	got, err := podrunner.ContainerConfig(t.Context(), pod, c, in, node)
	require.NoError(t, err)
	require.Equal(t, "/dev/fpga", got.GetDevices()[0].GetContainerPath())
	require.Equal(t, "acme.example/fpga=1", got.GetCDIDevices()[0].GetName())
	require.Equal(t, []string{"GIVEN=1", "OWN=spec", "LATE=$(GIVEN)"}, variables(got), "variables must be merged as in the kubelet")
	require.Equal(t, []string{"1 spec"}, got.GetArgs())
	require.Equal(t, []string{"/lib/given", "/lib/own"}, []string{got.GetMounts()[0].GetContainerPath(), got.GetMounts()[1].GetContainerPath()})
	require.False(t, got.GetMounts()[0].GetSelinuxRelabel(), "without SELinux in the kernel, mounts must not be relabelled")
	require.True(t, given.GetSelinuxRelabel(), "the allocator's injection must not be modified")
	require.Equal(t, "1", got.GetAnnotations()["acme.example/share"])
	require.Equal(t, "0", got.GetAnnotations()["io.kubernetes.container.restartCount"], "the agent's own annotations must have precedence")
	require.Equal(t, "2-3", got.GetLinux().GetResources().GetCpusetCpus())
	require.Equal(t, "1", got.GetLinux().GetResources().GetCpusetMems())

	in.Env = map[string]string{"A=B": ""}
	_, err = podrunner.ContainerConfig(t.Context(), pod, c, in, node)
	require.ErrorContains(t, err, `environment variable "A=B"`)
}

func TestInject_GoesIntoTheCreatedContainer(t *testing.T) {
	t.Parallel()
	made := &configs{}
	health := []corev1.ResourceStatus{{Name: "acme.example/fpga"}}
	cpu := &ledger{name: "cpu", in: resources.Injection{CPUs: "0-1"}}
	fpga := &ledger{name: "fpga", in: resources.Injection{Env: map[string]string{"FPGA": "/dev/fpga"}, Health: health}}
	b, pod := newBed(t, recording(made), injecting(cpu, fpga)), podOf(nil, "app")
	require.Nil(t, b.runner.Health(pod.UID))
	require.NoError(t, b.sync(pod))
	require.Equal(t, "0-1", made.container.GetLinux().GetResources().GetCpusetCpus())
	require.Equal(t, "FPGA", made.container.GetEnvs()[0].GetKey())
	require.Equal(t, []string{"app="}, cpu.asked(), "the allocator must be called once per container instance")
	require.Equal(t, map[string][]corev1.ResourceStatus{"app": health}, b.runner.Health(pod.UID))

	b.did()
	fpga.in.Health = nil
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"app=" + b.look(pod.UID).Container("app").GetId()}, cpu.asked())
	require.Empty(t, b.did(), "the container has the desired CPUs, so nothing must change")
	require.Equal(t, map[string][]corev1.ResourceStatus{"app": nil}, b.runner.Health(pod.UID))
	b.runner.Forget(pod.UID)
	require.Nil(t, b.runner.Health(pod.UID))
}

func TestInject_ConflictKeepsTheContainerWaiting(t *testing.T) {
	t.Parallel()
	log := &events{}
	cpu, topology := &ledger{name: "cpu", in: resources.Injection{CPUs: "0"}}, &ledger{name: "topology", in: resources.Injection{CPUs: "1"}}
	b, pod := newBed(t, injecting(cpu, topology), func(c *podrunner.Config) { c.Events = log }), podOf(nil, "app", "job")
	const message = "allocators cpu and topology both set CPUs"
	require.ErrorContains(t, b.sync(pod), message)
	require.Equal(t, corev1.ContainerStateWaiting{Reason: podrunner.CreateContainerConfigError, Message: message}, b.runner.Waiting(pod.UID)["app"])
	require.Empty(t, b.look(pod.UID).Containers)
	require.Contains(t, log.take(), "Warning Failed Error: "+message)

	topology.in.CPUs = ""
	require.NoError(t, b.sync(pod), "the next sync must retry")
	require.Len(t, b.look(pod.UID).Containers, 2)
	require.Empty(t, b.runner.Waiting(pod.UID))
}

func TestInject_ErrorKeepsTheContainerWaitingAndNamesItsAllocator(t *testing.T) {
	t.Parallel()
	fpga := &ledger{name: "fpga", err: errors.New("the device is gone")}
	b, pod := newBed(t, injecting(fpga)), podOf(nil, "app")
	err := b.sync(pod)
	require.ErrorIs(t, err, fpga.err)
	_, retries := errors.AsType[*podworker.RetryError](err)
	require.False(t, retries, "the error must not have a retry time, because the worker's own back-off applies")
	require.Equal(t, corev1.ContainerStateWaiting{
		Reason: podrunner.CreateContainerConfigError, Message: "allocator fpga: the device is gone",
	}, b.runner.Waiting(pod.UID)["app"])
}

func TestInject_ShrinkingPoolUpdatesRunningContainers(t *testing.T) {
	t.Parallel()
	cpu := &ledger{name: "cpu", in: resources.Injection{CPUs: "0-3", Mems: "0"}}
	b, pod := newBed(t, injecting(cpu)), podOf(nil, "app", "stubborn")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug", "app")}
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.sync(pod), "the ephemeral container must start in the existing sandbox")
	b.did()
	b.plans = nil

	cpu.in.CPUs = "2-3"
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{
		"UpdateContainerResources ns/pod/app", "UpdateContainerResources ns/pod/stubborn", "UpdateContainerResources ns/pod/debug",
	}, b.did())
	require.Contains(t, b.plans[0], "): cpus 0-3 → 2-3: its allocators assign another cpuset\n")
	for _, s := range b.look(pod.UID).Containers {
		require.Equal(t, "2-3", s.GetResources().GetLinux().GetCpusetCpus())
		require.Equal(t, "0", s.GetResources().GetLinux().GetCpusetMems())
	}

	cpu.in = resources.Injection{} // no CPUs injected
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did(), "a running container must keep its CPUs")

	cpu.in, cpu.err = resources.Injection{}, errors.New("unknown pod")
	require.ErrorContains(t, b.sync(pod), "update resources of running container app of pod ns/pod: allocator cpu: unknown pod")
	require.Empty(t, b.did(), "running containers must not change")
}

func TestInject_UpdateThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	cpu := &ledger{name: "cpu", in: resources.Injection{CPUs: "0-3"}}
	b, pod := newBed(t, injecting(cpu)), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	cpu.in.CPUs = "1"
	require.NoError(t, b.node.Fail("UpdateContainerResources", fakecri.Fault{Err: errors.New("device busy"), Times: 1}))
	require.ErrorContains(t, b.sync(pod), "pin container app")
	require.NoError(t, b.sync(pod))
	require.Equal(t, "1", b.look(pod.UID).Container("app").GetResources().GetLinux().GetCpusetCpus())
}

// TestInject_AfterARestartOfTheAgent checks that the Runner sets the cpuset once if the
// runtime does not report it.
func TestInject_AfterARestartOfTheAgent(t *testing.T) {
	t.Parallel()
	cpu := &ledger{name: "cpu", in: resources.Injection{CPUs: "0-3"}}
	b, pod := newBed(t, injecting(cpu)), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	status := b.look(pod.UID)
	b.did()
	restart := func() {
		var err error
		b.runner, err = podrunner.New(podrunner.Config{
			Sandboxes: b.node, Containers: b.node, Images: newImages(t, images.Config{Images: b.node}), Resizer: b.node, Agent: "agent", Clock: b.clock,
			Refresh: func(context.Context, types.UID) (*podcache.Status, error) { return b.look(pod.UID), nil },
			Inject:  resources.Combine(cpu),
		})
		require.NoError(t, err)
	}
	sync := func() {
		_, err := b.runner.SyncPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: status})
		require.NoError(t, err)
	}
	restart()
	sync()
	require.Empty(t, b.did(), "nothing must change, because the runtime reports the cpuset")

	status.Containers[0].Resources = nil
	restart()
	sync()
	require.Equal(t, []string{"UpdateContainerResources ns/pod/app"}, b.did())
	sync()
	require.Empty(t, b.did(), "once")
}

func TestPlan_PinsContainersThatKeepRunning(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "job")
	require.NoError(t, b.sync(pod))
	status := b.look(pod.UID)
	app, job := status.Container("app").GetId(), status.Container("job").GetId()
	in := podrunner.Input{Pod: pod, Status: status, Pinnings: map[string]podrunner.Pinning{
		app:   {Now: podrunner.Cpuset{CPUs: "0", Mems: "0"}, Wanted: podrunner.Cpuset{CPUs: "0", Mems: "1"}},
		job:   {Wanted: podrunner.Cpuset{CPUs: "2"}},
		"old": {Wanted: podrunner.Cpuset{CPUs: "2"}},
	}}
	actions := podrunner.Plan(in)
	require.False(t, actions.Empty())
	require.Equal(t, "pin container app ("+app+"): mems 0 → 1: its allocators assign another cpuset\n"+
		"pin container job ("+job+"): cpus to 2: its current cpuset is not set or unknown\n", actions.String())

	in.Pod = pod.DeepCopy()
	in.Pod.Spec.Containers[0].Args = []string{"changed"}
	actions = podrunner.Plan(in)
	require.Len(t, actions.Kill, 1)
	require.Len(t, actions.Pin, 1, "a container that is replaced must not be pinned")
	require.Equal(t, "job", actions.Pin[0].Name)

	in.Pinnings = nil
	require.Empty(t, podrunner.Plan(in).Pin)
}

// Extended resources are supported if the Runner has allocators and the node
// has the resources.
func TestUnsupported_ExtendedResources(t *testing.T) {
	t.Parallel()
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		"acme.example/fpga": resource.MustParse("1"), "acme.example/other": resource.MustParse("1"),
	}
	b := newBed(t, injecting(), func(c *podrunner.Config) {
		c.Facts = func() podrunner.Facts {
			return podrunner.Facts{Allocatable: corev1.ResourceList{"acme.example/fpga": resource.MustParse("2")}}
		}
	})
	require.EqualError(t, b.runner.Unsupported(pod), "spec.containers[0].resources.limits[acme.example/other]: not supported")
}

func TestInject_NilChangesNothing(t *testing.T) {
	t.Parallel()
	made := &configs{}
	b, pod := newBed(t, recording(made)), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	require.Empty(t, made.container.GetLinux().GetResources().GetCpusetCpus())
	require.Empty(t, made.container.GetEnvs())
	b.did()
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did())
	require.Nil(t, b.runner.Health(pod.UID), "the health of a removed pod must be deleted")
}
