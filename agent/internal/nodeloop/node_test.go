package nodeloop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

func TestNode_DescribesMachineAndRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.MaxPods = 42
		b.cfg.Reserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
		b.cfg.Eviction.Thresholds = []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: eviction.Value{Quantity: 1 << 30}}}
		created := time.Now()
		b.make(t)
		require.Equal(t, "node1", b.Node().Name)
		require.Empty(t, b.Node().Status.Conditions, "the node must have no conditions before Run")

		b.start(t)
		node := b.Node()
		require.Equal(t, map[string]string{"kubernetes.io/hostname": "node1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}, node.Labels)
		require.Equal(t, metav1.NewTime(created), node.CreationTimestamp)
		require.Equal(t, "Node", node.Kind)
		require.Equal(t, corev1.ConditionTrue, b.ready().Status, b.ready().Message)
		require.Equal(t, "42", node.Status.Capacity.Pods().String())
		require.Equal(t, "512Mi", node.Status.Capacity.Name("hugepages-2Mi", resource.BinarySI).String())
		require.Equal(t, "3500m", node.Status.Allocatable.Cpu().String())
		require.Equal(t, "6656Mi", node.Status.Allocatable.Memory().String(), "8Gi minus the threshold and the huge pages")
		require.Equal(t, "v1.2.3", node.Status.NodeInfo.KubeletVersion)
		require.Equal(t, "fakecri", b.RuntimeName())
		require.Contains(t, node.Status.NodeInfo.ContainerRuntimeVersion, "fakecri://")
		require.Equal(t, int64(1<<30), *node.Status.NodeInfo.Swap.Capacity)
		require.Equal(t, []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"}, {Type: corev1.NodeHostName, Address: "node1"},
		}, node.Status.Addresses)
		require.NotEmpty(t, node.Status.RuntimeHandlers)
		wait(time.Minute)
		require.Equal(t, "docker.io/demo/app:1", b.Node().Status.Images[0].Names[1])
		require.NoError(t, b.check(t, "runtime").Err)
	})
}

// The runtime stops for longer than the grace period of the node, and then responds again.
func TestNode_FollowsTheRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start(t)
		b.Relisted(nil)
		wait(time.Minute)
		lastAnswer := time.Now()
		down := time.Now()
		b.node.Restart(50 * time.Second)
		b.Relisted(errors.New("connection refused"))
		synctest.Wait()
		require.Error(t, b.check(t, "runtime").Err, "a failed relist must trigger a call of Status")
		require.False(t, b.check(t, "runtime").Fatal)
		require.Equal(t, 1, b.log.count("the container runtime is not ready"))

		for time.Since(lastAnswer) < 22*time.Second {
			wait(time.Second)
			require.Equal(t, corev1.ConditionTrue, b.ready().Status, "%v after the runtime stopped: a short restart must not make the node not ready", time.Since(down))
		}
		wait(11 * time.Second)
		require.Equal(t, corev1.ConditionFalse, b.ready().Status)
		require.Contains(t, b.ready().Message, "container runtime is down")
		notReady := b.ready().LastTransitionTime
		wait(15 * time.Second)
		require.Equal(t, notReady, b.ready().LastTransitionTime)

		wait(time.Until(down.Add(52 * time.Second)))
		require.Equal(t, corev1.ConditionTrue, b.ready().Status, "a failing runtime must be checked every two seconds")
		require.True(t, b.ready().LastTransitionTime.After(notReady.Time))
		require.NoError(t, b.check(t, "runtime").Err)
		require.Equal(t, 1, b.log.count("the container runtime is ready again"))
		require.Equal(t, 1, b.log.count("the container runtime is not ready"))
		require.Len(t, b.calls("Version"), 2, "the version must be requested again after an outage")
	})
}

func TestNode_HungRuntimeIsDetectedWithin11Seconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start(t)
		wait(time.Second)
		require.NoError(t, b.node.Fail("Status", fakecri.Fault{Hang: true}))
		wait(10 * time.Second)
		require.EqualError(t, b.check(t, "runtime").Err, "no answer within 3s")
		b.node.ClearFaults("Status")
		wait(2 * time.Second)
		require.NoError(t, b.check(t, "runtime").Err)
	})
}

func TestNode_WaitsForARuntimeThatStartsLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		require.NoError(t, b.node.Fail("Status", fakecri.Fault{Hang: true}))
		b.start(t)
		require.EqualError(t, b.check(t, "runtime").Err, "the status of the container runtime was not requested yet")
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.AwaitNode(impatient)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "wait for the first status of node node1")

		began := time.Now()
		node, err := b.AwaitNode(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(began), "the shortest outage that makes the node not ready")
		require.Equal(t, "4", node.Status.Capacity.Cpu().String())
		require.Empty(t, b.RuntimeName())
		require.Contains(t, b.ready().Message, "container runtime status check may not have completed yet")
		require.Equal(t, 1, b.log.count("the container runtime is not ready"))
	})
}

// unready is a runtime that reports that it is not ready.
type unready struct {
	*fakecri.Node
	condition string
}

func (u unready) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	answer, err := u.Node.Status(ctx, verbose)
	for _, c := range answer.GetStatus().GetConditions() {
		if c.GetType() == u.condition {
			c.Status, c.Reason, c.Message = false, "NoCNI", "cni plugin not initialized"
		}
	}
	return answer, err
}

func TestNode_RuntimeReportsAProblem(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.cfg.Runtime = unready{b.node, kind}
				b.start(t)
				require.EqualError(t, b.check(t, "runtime").Err, kind+" is false: NoCNI: cni plugin not initialized")
				require.Equal(t, corev1.ConditionFalse, b.ready().Status, "the node must become not ready at once")
				if err := b.Facts().NetworkErr; kind == runtimeapi.NetworkReady {
					require.EqualError(t, err, "container runtime network not ready: NetworkReady=false reason:NoCNI message:cni plugin not initialized")
				} else {
					require.NoError(t, err)
				}
				for range 20 {
					b.Relisted(nil)
					wait(time.Second)
				}
				require.Len(t, b.calls("Status"), 12, "only the first successful relist must trigger a call of Status")
			})
		})
	}
}

// Before the first relist the node is not ready. The first relist must make it ready, without
// waiting for the next periodic check of the runtime.
func TestNode_IsReadyWithTheFirstRelist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.pods.unhealthy = errors.New("no relist has succeeded yet")
		b.start(t)
		require.Equal(t, corev1.ConditionFalse, b.ready().Status)
		b.pods.unhealthy = nil
		b.Relisted(nil)
		synctest.Wait()
		require.Equal(t, corev1.ConditionTrue, b.ready().Status)
	})
}

func TestNode_FailedVersionRequestIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		require.NoError(t, b.node.Fail("Version", fakecri.Fault{Times: 1, Err: errors.New("busy")}))
		b.start(t)
		require.ErrorContains(t, b.check(t, "runtime").Err, "busy")
		wait(2 * time.Second)
		require.NoError(t, b.check(t, "runtime").Err)
		require.Equal(t, "fakecri", b.RuntimeName())
		wait(time.Hour)
		require.Len(t, b.calls("Version"), 2)
	})
}

func TestNode_IsTheSamePointerUntilItDiffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start(t)
		wait(2 * time.Minute) // until the images have been listed
		before, pointers, changed := b.Node(), 0, b.changed.Load()
		for range 6 * 60 {
			b.Recompute()
			wait(10 * time.Second)
			if b.Node() != before {
				apart := b.ready().LastHeartbeatTime.Sub(condition(before, corev1.NodeReady).LastHeartbeatTime.Time)
				require.InDelta(t, nodestatus.ReportPeriod, apart, float64(10*time.Second))
				before = b.Node()
				pointers++
			}
		}
		require.InDelta(t, 12, pointers, 1, "number of new nodes in an hour, from heartbeats")
		require.Equal(t, int64(pointers), b.changed.Load()-changed)

		b.machine.change(func(m *machine) { m.facts.Info.OSImage = "Linux 2" })
		b.Recompute()
		synctest.Wait()
		require.NotSame(t, before, b.Node())
		require.Equal(t, "Linux 2", b.Node().Status.NodeInfo.OSImage)
		require.Equal(t, "Linux", before.Status.NodeInfo.OSImage, "a returned node must not change")
	})
}

func TestNode_NodeStatusHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		devices := "2"
		healthy := corev1.ConditionTrue
		b.cfg.NodeStatus = func(n *corev1.Node) {
			if devices != "" {
				n.Status.Capacity["acme.example/fpga"] = resource.MustParse(devices)
				n.Status.Allocatable["acme.example/fpga"] = resource.MustParse(devices)
				n.Labels["acme.example/fpga"] = "yes"
			}
			n.Spec.PodCIDR = "10.0.0.0/24"
			n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Acme", Status: healthy})
		}
		b.start(t)
		wait(2 * time.Minute)
		node := b.Node()
		require.Equal(t, "2", node.Status.Capacity.Name("acme.example/fpga", resource.DecimalSI).String())
		require.Equal(t, "yes", node.Labels["acme.example/fpga"])
		require.Equal(t, int32(10250), node.Status.DaemonEndpoints.KubeletEndpoint.Port)
		require.Equal(t, "10.0.0.0/24", node.Spec.PodCIDR)
		began := condition(node, "Acme").LastTransitionTime
		require.False(t, began.IsZero())
		allocatable := b.Facts().Allocatable
		require.Equal(t, "2", allocatable.Name("acme.example/fpga", resource.DecimalSI).String())
		awaited, err := b.AwaitNode(t.Context())
		require.NoError(t, err)
		require.Same(t, node, awaited, "admission must use the changed node")
		wait(time.Minute)
		require.Same(t, node, b.Node(), "omitted times in the hook's result must not count as a change")

		devices = ""
		b.Recompute()
		synctest.Wait()
		require.NotContains(t, b.Node().Status.Capacity, corev1.ResourceName("acme.example/fpga"))
		require.NotContains(t, b.Node().Labels, "acme.example/fpga")
		require.Equal(t, began, condition(b.Node(), "Acme").LastTransitionTime)

		healthy = corev1.ConditionFalse
		b.Recompute()
		synctest.Wait()
		require.True(t, condition(b.Node(), "Acme").LastTransitionTime.After(began.Time))
	})
}

func TestNode_ReportsProblemsOfTheAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start(t)
		b.pods.change(func(p *fakePods) { p.unhealthy = errors.New("the last relist is 4m old") })
		b.ShutdownStarted()
		synctest.Wait()
		require.Equal(t, "[PLEG is not healthy: the last relist is 4m old, node is shutting down]", b.ready().Message)
		b.pods.change(func(p *fakePods) { p.unhealthy = nil })
		b.ShutdownEnded()
		synctest.Wait()
		require.Equal(t, corev1.ConditionTrue, b.ready().Status)
	})
}

// At first all calls of the host fail, then some, then all again.
func TestNode_MissingFacts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		whole := b.machine.facts
		b.machine.change(func(m *machine) { m.facts.Capacity, m.err = nil, errors.New("no /proc") })
		b.start(t)
		require.Equal(t, corev1.ConditionFalse, b.ready().Status)
		require.ErrorContains(t, b.check(t, "host").Err, "could not read all facts of the machine: no /proc")
		require.Len(t, b.Facts().IPs, 2, "the known facts must be returned")

		b.machine.change(func(m *machine) { m.facts, m.err = whole, errors.New("no hosts file") })
		b.Recompute()
		synctest.Wait()
		require.Equal(t, "kubelet is posting ready status. WARNING: could not read all facts of the machine: no hosts file", b.ready().Message)
		require.Equal(t, "4", b.Node().Status.Capacity.Cpu().String())

		b.machine.change(func(m *machine) { m.facts.Capacity, m.facts.Addresses = nil, nil })
		b.Recompute()
		synctest.Wait()
		require.Equal(t, "4", b.Node().Status.Capacity.Cpu().String(), "the previous facts must be kept")
		require.Len(t, b.Facts().IPs, 2)

		b.machine.change(func(m *machine) { m.facts, m.err = whole, nil })
		b.Recompute()
		synctest.Wait()
		require.NoError(t, b.check(t, "host").Err)
		require.Equal(t, "kubelet is posting ready status", b.ready().Message)
	})
}

func TestNode_IdleLoopRarelyCallsTheRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.PodLogs = t.TempDir()
		b.pods.hidden = true // in an agent, the PLEG inspects the runtime, and not the node loop
		b.start(t)
		wait(10 * time.Minute)
		before := len(b.node.Calls())
		wait(10 * time.Minute)
		byMethod := map[string]int{}
		for _, c := range b.node.Calls()[before:] {
			byMethod[c.Method]++
		}
		require.Equal(t, map[string]int{"Status": 75, "ListImages": 10, "ListContainers": 10}, byMethod)
	})
}
