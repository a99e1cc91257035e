package cluster_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// facts replaces the facts of the machine of the next agent.
func (b *bed) facts(change func(*host.Facts)) {
	before := b.config
	b.config = func(c *agent.Config) {
		if before != nil {
			before(c)
		}
		h := fakehost.New(b.runtime)
		read := h.Facts
		h.Facts = func(ctx context.Context) (host.Facts, error) {
			f, err := read(ctx)
			change(&f)
			return f, err
		}
		c.Host = h
	}
}

func TestNode_IsRegisteredWithItsWholeStatus(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.cluster = func(c *cluster.Config) {
			c.Labels = map[string]string{"disk": "ssd", corev1.LabelHostname: "other"}
			c.Taints = []corev1.Taint{{Key: "example.com/new", Effect: corev1.TaintEffectNoSchedule}}
			c.ProviderID = "acme://1"
		}
		b.config = func(c *agent.Config) {
			c.NodeStatus = func(n *corev1.Node) {
				n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
				n.Annotations = map[string]string{"example.com/note": "yes"}
			}
		}
		b.start()
		after(time.Minute)
		n := b.node()
		require.Equal(b.t, map[string]string{"disk": "ssd", "kubernetes.io/hostname": "other", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}, n.Labels)
		require.Equal(b.t, map[string]string{"example.com/note": "yes"}, n.Annotations)
		require.Equal(b.t, []corev1.Taint{{Key: "example.com/new", Effect: corev1.TaintEffectNoSchedule}}, n.Spec.Taints)
		require.Equal(b.t, "acme://1", n.Spec.ProviderID)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
		require.Equal(b.t, "8", n.Status.Capacity.Cpu().String())
		require.Equal(b.t, "110", n.Status.Allocatable.Pods().String())
		require.Equal(b.t, int32(10250), n.Status.DaemonEndpoints.KubeletEndpoint.Port)
		require.Equal(b.t, "v1.36.0", n.Status.NodeInfo.KubeletVersion)
		require.NotEmpty(b.t, n.Status.RuntimeHandlers)
		require.NotEmpty(b.t, n.Status.Images)
		require.Equal(b.t, "192.0.2.1", n.Status.Addresses[0].Address)
		require.Len(b.t, b.sent("create nodes"), 1)
	})
}

// The watch of the node begins before the node exists. The first report does not wait for its event.
func TestNode_FirstReportDoesNotNeedTheWatch(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.failing(func(_ *http.Request, q request) error {
			if q.String() == "create nodes" {
				<-time.After(time.Second)
			}
			return nil
		})
		b.start()
		after(time.Minute)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
		require.Zero(b.t, b.logged("could not report the status of the node"))
	})
}

func TestNode_UnchangedStatusIsReportedEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		after(20 * time.Minute) // Random returns 0.5, so there are no random delays
		b.forget()
		before := b.condition(corev1.NodeReady)
		after(time.Hour)
		require.InDelta(b.t, 12, len(b.sent("patch nodes/status")), 1)
		require.Empty(b.t, b.sent("get nodes"))
		now := b.condition(corev1.NodeReady)
		require.True(b.t, now.LastHeartbeatTime.After(before.LastHeartbeatTime.Time))
		require.Equal(b.t, before.LastTransitionTime, now.LastTransitionTime)
	})
}

func TestNode_ReportsChangesWithinTenSecondsAndConditionsAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		image := "OS 1"
		b.facts(func(f *host.Facts) { f.Info.OSImage = image })
		b.start()
		after(10 * time.Minute)
		image = "OS 2"
		b.agent.SyncAll()
		after(10 * time.Second)
		require.Equal(b.t, "OS 2", b.node().Status.NodeInfo.OSImage)

		after(3 * time.Second) // between two checks
		stopped, cancel := context.WithCancel(b.t.Context())
		go func() { _ = b.agent.StopPods(stopped, podworker.ShutdownConfig{}) }()
		after(time.Second)
		require.Equal(b.t, corev1.ConditionFalse, b.condition(corev1.NodeReady).Status)
		require.Contains(b.t, b.condition(corev1.NodeReady).Message, "node is shutting down")
		cancel()
	})
}

// Other clients change the node before and while the agent reports its status.
func TestNode_KeepsWhatOtherClientsWrite(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		after(time.Minute)
		edit(b.api, "nodes", "", nodeName, func(n *corev1.Node) {
			n.Labels["zone"], n.Annotations = "a", map[string]string{"x": "y"}
			n.Spec.Unschedulable, n.Spec.PodCIDR = true, "10.1.0.0/24"
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionFalse, Reason: "fine"})
			n.Status.Capacity["example.com/dongle"] = resource.MustParse("4")
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v", DevicePath: "/dev/v"}}
			delete(n.Labels, corev1.LabelOSStable)
			n.Status.NodeInfo.KernelVersion = "wrong"
		})
		after(11 * time.Minute)
		n := b.node()
		require.Equal(b.t, "a", n.Labels["zone"])
		require.Equal(b.t, "linux", n.Labels[corev1.LabelOSStable], "the scheduler needs this label")
		require.Equal(b.t, map[string]string{"x": "y"}, n.Annotations)
		require.True(b.t, n.Spec.Unschedulable)
		require.Equal(b.t, "10.1.0.0/24", n.Spec.PodCIDR)
		require.Equal(b.t, "fine", b.condition("KernelDeadlock").Reason)
		require.Equal(b.t, "4", n.Status.Allocatable.Name("example.com/dongle", resource.DecimalSI).String())
		require.Len(b.t, n.Status.VolumesAttached, 1)
		require.NotEqual(b.t, "wrong", n.Status.NodeInfo.KernelVersion)
	})
}

// An agent starts on a machine whose node exists, with values of an earlier kubelet.
func TestNode_ReconcilesAnExistingNode(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		since := metav1.NewTime(time.Now().Add(-time.Hour).UTC())
		b.put("nodes", &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid", Labels: map[string]string{
				corev1.LabelArchStable: "riscv64", "team": "red", corev1.LabelTopologyZone: "old",
			}},
			Status: corev1.NodeStatus{
				Conditions:   []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: since}},
				Capacity:     corev1.ResourceList{"hugepages-1Gi": resource.MustParse("1Gi")},
				VolumesInUse: []corev1.UniqueVolumeName{"left over"},
				Images:       []corev1.ContainerImage{{Names: []string{"demo/earlier:1"}}},
				NodeInfo:     corev1.NodeSystemInfo{BootID: "earlier"},
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::9"},
				},
			},
		})
		b.cluster = func(c *cluster.Config) {
			c.Labels = map[string]string{"team": "blue", corev1.LabelTopologyZone: "new"}
		}
		b.start()
		after(5 * time.Second)
		n := b.node()
		require.Equal(b.t, "amd64", n.Labels[corev1.LabelArchStable])
		require.Equal(b.t, "new", n.Labels[corev1.LabelTopologyZone])
		require.Equal(b.t, "red", n.Labels["team"], "labels of the user are set only when the node is created")
		require.Equal(b.t, "node-uid", string(n.UID))
		require.NotContains(b.t, n.Status.Capacity, corev1.ResourceName("hugepages-1Gi"))
		require.Empty(b.t, n.Status.VolumesInUse)
		require.NotEmpty(b.t, n.Status.Images, "the agent keeps the images until it has listed them")
		require.True(b.t, since.Equal(&[]metav1.Time{b.condition(corev1.NodeReady).LastTransitionTime}[0]), "the node stayed ready")
		require.Equal(b.t, []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: nodeName}}, n.Status.Addresses)
		require.Equal(b.t, 1, b.recorded("Rebooted"))
		require.Equal(b.t, "Node node1 has been rebooted, boot id: fake", b.message("Rebooted"))
	})
}

// The runtime does not answer when the agent starts. The node is registered all the same.
func TestNode_ThatIsNotReadyIsReportedAfterFiveSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.runtime.Restart(time.Minute)
		b.start()
		_, exists := read[corev1.Node](b.api, "nodes", "", nodeName)
		require.False(b.t, exists)
		after(5 * time.Second)
		require.Equal(b.t, corev1.ConditionFalse, b.condition(corev1.NodeReady).Status)
		after(2 * time.Minute)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
	})
}

// Two addresses of different families become two other addresses. A merge by type would lose one of
// the addresses.
func TestNode_AddressesOfBothFamilies(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		last := "1"
		b.facts(func(f *host.Facts) {
			f.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2." + last), netip.MustParseAddr("2001:db8::" + last)}
		})
		b.start()
		after(time.Minute)
		last = "2"
		b.agent.SyncAll()
		after(time.Minute)
		require.Equal(b.t, []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::2"}, {Type: corev1.NodeHostName, Address: nodeName},
		}, b.node().Status.Addresses)
	})
}

// After a change, the next report of an unchanged status comes at a random time of up to half a
// period earlier or later, and then every period.
func TestNode_ReportsAreSpread(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		image := "OS 1"
		b.facts(func(f *host.Facts) { f.Info.OSImage = image })
		b.cluster = func(c *cluster.Config) { c.Random = func() float64 { return 0 } }
		b.start()
		after(time.Hour)
		image = "OS 2"
		b.agent.SyncAll()
		after(10 * time.Second)
		require.Equal(b.t, "OS 2", b.node().Status.NodeInfo.OSImage)
		b.forget()
		after(2*time.Minute + 20*time.Second)
		require.Empty(b.t, b.sent("patch nodes/status"))
		after(20 * time.Second)
		require.Len(b.t, b.sent("patch nodes/status"), 1)
		after(4*time.Minute + 40*time.Second)
		require.Len(b.t, b.sent("patch nodes/status"), 1)
		after(30 * time.Second)
		require.Len(b.t, b.sent("patch nodes/status"), 2)
	})
}

// counted counts the requests of one client.
type counted struct {
	*api
	mu    sync.Mutex
	kinds map[string]int
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	q := parse(r)
	c.mu.Lock()
	c.kinds[q.verb+" "+q.resource]++
	c.mu.Unlock()
	return c.api.RoundTrip(r)
}

// Heartbeats have a client of their own, so that other requests don't delay them.
func TestNode_HeartbeatsUseTheirOwnClient(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		heart := &counted{api: b.api, kinds: map[string]int{}}
		b.cluster = func(c *cluster.Config) { c.Heartbeats = clientOf(b.t, heart) }
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(20 * time.Minute)
		b.stop()
		delete(heart.kinds, "get nodes") // one request if the lease is created before the watch has listed the node
		require.Equal(b.t, map[string]int{
			"get leases": 1, "create leases": 1, "update leases": len(b.sent("update leases")), "patch nodes": len(b.sent("patch nodes/status")),
		}, heart.kinds)
		require.Positive(b.t, heart.kinds["patch nodes"])
	})
}

// The agent stops while the node can't be registered.
func TestNode_StopDuringRegistration(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.failing(func(r *http.Request, q request) error {
			if q.resource == "nodes" {
				<-r.Context().Done()
				return r.Context().Err()
			}
			return nil
		})
		b.start()
		after(time.Minute)
		began := time.Now()
		b.stop()
		require.WithinDuration(b.t, began, time.Now(), time.Second)
		require.Positive(b.t, b.logged("could not register the node, will retry"), "each request is given up after ten seconds")
	})
}

// A user without the permission to create nodes uses the existing node.
func TestNode_CreationForbidden(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
		b.failing(func(_ *http.Request, q request) error {
			if q.verb == "create" && q.resource == "nodes" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, nodeName, errors.New("no"))
			}
			return nil
		})
		b.start()
		after(time.Minute)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
	})
}

func TestNode_RegistrationIsRetried(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.failing(func(*http.Request, request) error { return errors.New("etcd is down") })
		b.start()
		after(time.Hour)
		tries := len(b.sent("create nodes"))
		require.InDelta(b.t, 3600/7, tries, 10)
		require.Positive(b.t, b.logged("could not register the node, will retry"))
		_, exists := read[coordinationv1.Lease](b.api, "leases", corev1.NamespaceNodeLease, nodeName)
		require.False(b.t, exists)
		b.failing(nil)
		after(10 * time.Second)
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
		_, exists = read[coordinationv1.Lease](b.api, "leases", corev1.NamespaceNodeLease, nodeName)
		require.True(b.t, exists)
	})
}

// If reports fail, the agent makes five attempts without a pause, and then waits for one period.
func TestNode_FailedReportsAreRetried(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		image := "OS 1"
		b.facts(func(f *host.Facts) { f.Info.OSImage = image })
		b.start()
		after(time.Minute)
		b.failing(func(_ *http.Request, q request) error {
			if q.verb == "patch" && q.resource == "nodes" {
				return errors.New("etcd is down")
			}
			return nil
		})
		b.forget()
		image = "OS 2"
		b.agent.SyncAll()
		after(35 * time.Second)
		require.Contains(b.t, []int{15, 20}, len(b.sent("patch nodes/status")))
		require.Len(b.t, b.sent("get nodes"), len(b.sent("patch nodes/status"))-1, "only the first attempt uses the cached node")
		b.failing(nil)
		after(10 * time.Second)
		require.Equal(b.t, "OS 2", b.node().Status.NodeInfo.OSImage)
	})
}

// The node is replaced while its old version is cached. The patch of the old version fails with a
// conflict.
func TestNode_OfTheSameNameIsNotPatchedFromAnOldVersion(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		image := "OS 1"
		b.facts(func(f *host.Facts) { f.Info.OSImage = image })
		b.start()
		after(time.Minute)
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "nodes" && (q.verb == "watch" || q.verb == "list") {
				return errors.New("no watches")
			}
			return nil
		})
		b.endWatches(true)
		b.remove("nodes", "", nodeName)
		b.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "another"}})
		image = "OS 2"
		b.agent.SyncAll()
		after(time.Minute)
		require.Equal(b.t, 1, b.logged("precondition failed: uid is another"))
		require.Equal(b.t, "OS 2", b.node().Status.NodeInfo.OSImage)
		require.Equal(b.t, "8", b.node().Status.Capacity.Cpu().String(), "the whole status is reported")
	})
}

// As with the kubelet, a deleted node is not created again until the agent restarts.
func TestNode_DeletedNodeStaysDeleted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		after(time.Minute)
		b.remove("nodes", "", nodeName)
		after(10 * time.Minute)
		_, exists := read[corev1.Node](b.api, "nodes", "", nodeName)
		require.False(b.t, exists)
		require.Positive(b.t, b.logged("could not report the status of the node, will retry"))
		b.stop()
		b.start()
		require.Equal(b.t, corev1.ConditionTrue, b.condition(corev1.NodeReady).Status)
	})
}

// Admission uses the labels of the node in the API server, and gets the node if the cached labels
// do not fit.
func TestNode_AdmissionUsesLabelsOfTheCluster(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		after(time.Minute)
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "nodes" && q.verb != "get" {
				return errors.New("no watches")
			}
			return nil
		})
		b.endWatches(false)
		edit(b.api, "nodes", "", nodeName, func(n *corev1.Node) { n.Labels["disk"] = "ssd" })
		pod := newPod("web", "demo/web:1")
		pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		b.put("pods", pod)
		after(5 * time.Second)
		require.Equal(b.t, []string{"web"}, b.running())
		require.NotEmpty(b.t, b.sent("get nodes"))
	})
}

func TestNode_EventsAboutConditions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		after(time.Minute)
		require.Equal(b.t, 1, b.recorded("NodeHasSufficientMemory"))
		b.runtime.Restart(2 * time.Minute)
		after(time.Minute)
		require.Equal(b.t, 1, b.recorded("NodeNotReady"))
		after(2 * time.Minute)
		require.LessOrEqual(b.t, 1, b.recorded("NodeReady"))
	})
}

// setCordoned cordons or uncordons the node.
func (b *bed) setCordoned(cordoned bool) {
	edit(b.api, "nodes", "", nodeName, func(n *corev1.Node) { n.Spec.Unschedulable = cordoned })
}

// A cordoned node has an event at the next check of its status, and an event when the agent starts.
func TestNode_EventsAboutScheduling(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.start()
		after(time.Minute)
		require.Zero(b.t, b.recorded("NodeSchedulable")+b.recorded("NodeNotSchedulable"))
		b.setCordoned(true)
		after(11 * time.Second)
		require.Equal(b.t, "Node node1 status is now: NodeNotSchedulable", b.message("NodeNotSchedulable"))
		b.setCordoned(false)
		after(11 * time.Second)
		require.Equal(b.t, "Node node1 status is now: NodeSchedulable", b.message("NodeSchedulable"))
		after(time.Hour)
		require.Equal(b.t, 1, b.recorded("NodeSchedulable"))
		require.Equal(b.t, 1, b.recorded("NodeNotSchedulable"))
		b.setCordoned(true)
		b.stop()
		b.start()
		after(11 * time.Second)
		require.Equal(b.t, 2, b.recorded("NodeNotSchedulable"))
	})
}
