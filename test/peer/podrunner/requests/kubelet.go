package requests

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/selinux/go-selinux"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/network/dns"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/runtimeclass"
	"k8s.io/kubernetes/pkg/kubelet/userns"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// The kubelet's container back-off.
const (
	firstBackoff = 10 * time.Second
	mostBackoff  = 5 * time.Minute
	// all back-offs have ended after this time
	between = 20 * time.Minute
)

// theKubelet plays the kubelet's side: its runtime manager with a Kubelet as helper. Only
// those fields of the Kubelet are set that influence requests.
type theKubelet struct {
	*player
	kubelet *kubelet.Kubelet
	runtime kuberuntime.KubeGenericRuntime
	backoff *flowcontrol.Backoff
	cgroups *podCgroup
}

func playKubelet(t *testing.T, w *world) []judge.Facts {
	t.Helper()
	p := newPlayer(t, w)
	defer p.close(t)
	setMachine(t, w.Node)
	k := &theKubelet{player: p, kubelet: new(kubelet.Kubelet), cgroups: newPodCgroup(w)}
	k.backoff = flowcontrol.NewFakeBackOff(firstBackoff, mostBackoff, p.clock)
	k.fill(t)
	k.manager(t)
	return p.play(t, k.turn)
}

// setMachine makes the kubelet's packages use the world's machine.
func setMachine(t *testing.T, n node) {
	t.Helper()
	isCgroup2UnifiedMode = func() bool { return n.CgroupV2 }
	cgroups.HugePageSizes() // reads the page sizes of the real machine once, before they are replaced
	hugePageSizes = n.HugePages
	selinux.GetEnabled()
	seLinux.enabledSet, seLinux.enabled = true, n.SELinux
	gates := map[string]bool{"MemoryQoS": n.MemoryQoS, "ContainerStopSignals": true}
	for name, on := range gates {
		if utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name)) != on {
			require.NoError(t, utilfeature.DefaultMutableFeatureGate.SetFromMap(gates))
		}
	}
}

// fill sets the fields of the Kubelet.
func (k *theKubelet) fill(t *testing.T) {
	t.Helper()
	w, kl := k.world, k.kubelet
	var ips, clusterDNS []net.IP
	for _, ip := range w.Node.IPs {
		ips = append(ips, net.ParseIP(ip))
	}
	for _, ip := range w.Node.ClusterDNS {
		clusterDNS = append(clusterDNS, net.ParseIP(ip))
	}
	resolvConf := ""
	if w.Node.ResolvConf != nil {
		resolvConf = filepath.Join(k.root, "resolv.conf")
		require.NoError(t, os.WriteFile(resolvConf, []byte(*w.Node.ResolvConf), 0o600))
	}
	recorder := events{k.facts}
	setField(kl, "dnsConfigurer", dns.NewConfigurer(recorder, &corev1.ObjectReference{}, ips, clusterDNS, w.Node.ClusterDomain, resolvConf))
	setField(kl, "recorder", recorder)
	setField(kl, "nodeIPs", ips)
	setField(kl, "nodeName", types.NodeName("node-1"))
	setField(kl, "rootDirectory", k.root)
	setField(kl, "maxPods", 110)
	setField(kl, "containerManager", containers{world: w, cgroup: k.cgroups})
	setField(kl, "volumeManager", mounted{world: w, root: k.root})
	setField(kl, "configMapManager", objects{world: w})
	setField(kl, "secretManager", secrets{objects: objects{world: w}})
	setField(kl, "kubeClient", anyClient{})
	setField(kl, "serviceLister", services(w.Services))
	setField(kl, "serviceHasSynced", func() bool { return true })
	setField(kl, "nodeLister", nodes{self(w)})
	setField(kl, "hostutil", hostutil.NewHostUtil())
	setField(kl, "subpather", subPaths{k.root})
	setField(kl, "runtimeClassManager", k.runtimeClasses())
	state := newRuntimeState(0)
	setPointer(kl, "runtimeState", state)
	setRuntimeHandlers(state, k.handlers())
	ids, err := userns.MakeUserNsManager(klog.Background(), userIDs{kl}, nil)
	require.NoError(t, err)
	setField(kl, "usernsManager", ids)
}

func self(w *world) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	n.Status.Allocatable = w.Node.Allocatable
	for _, ip := range w.Node.IPs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return n
}

func (k *theKubelet) runtimeClasses() *runtimeclass.Manager {
	m := new(runtimeclass.Manager)
	setField(m, "lister", runtimeClasses(k.world.Node.RuntimeClasses))
	return m
}

func (k *theKubelet) handlers() (all []kubecontainer.RuntimeHandler) {
	for _, name := range []string{"", "kata-qemu"} {
		can := k.world.Node.can(name)
		all = append(all, kubecontainer.RuntimeHandler{Name: name, SupportsRecursiveReadOnlyMounts: can, SupportsUserNamespaces: can})
	}
	return all
}

// can reports whether a runtime handler has all optional features.
func (n node) can(handler string) bool {
	return n.HandlerFeatures && (handler == "" || !n.SecondHandlerLacks)
}

// manager makes the runtime manager.
func (k *theKubelet) manager(t *testing.T) {
	t.Helper()
	n := k.world.Node
	reservation := kubeletconfig.NoneMemoryReservationPolicy
	if n.TieredReservation {
		reservation = kubeletconfig.TieredReservationMemoryReservationPolicy
	}
	verify := kubeletconfig.NeverVerifyPreloadedImages
	switch {
	case n.VerifyEveryPull:
		verify = kubeletconfig.AlwaysVerify
	case n.NeverVerifyPulls:
		verify = kubeletconfig.NeverVerify
	}
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(k.ctx(t),
		events{k.facts}, proberesults.NewManager(), proberesults.NewManager(), proberesults.NewManager(), k.root, k.logs(),
		&cadvisorapi.MachineInfo{MemoryCapacity: uint64(n.Memory), SwapCapacity: uint64(n.Swap)},
		podStates{}, 110, machineFiles{facts: k.facts}, helper{k.kubelet}, nil,
		flowcontrol.NewFakeBackOff(firstBackoff, mostBackoff, k.clock), false, nil, 0, 0, string(verify), nil, "", "",
		n.SingleOOMKill, n.CFSQuota, metav1.Duration{Duration: n.CFSPeriod}, k.runtimeService(), k.imageService(),
		containers{world: k.world, cgroup: k.cgroups}, logs.NewStubContainerLogManager(), k.runtimeClasses(), n.SeccompDefault, n.SwapBehavior,
		func() corev1.ResourceList { return n.Allocatable }, n.ThrottlingFactor, reservation,
		pulling{}, noop.NewTracerProvider(), nil, nil, nil)
	require.NoError(t, err)
	setField(manager, "getSwapControllerAvailable", func() bool { return n.SwapController })
	k.runtime = manager
}

// turn does what the kubelet does in each sync of a pod after its volumes are mounted.
func (k *theKubelet) turn(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	ctx := klog.NewContext(k.ctx(t), logr.Discard())
	running := &kubecontainer.Pod{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	pods, err := k.runtime.GetPods(ctx, true)
	require.NoError(t, err)
	if len(pods) > 0 {
		running = pods[0]
	}
	status, err := k.runtime.GetPodStatus(ctx, running)
	require.NoError(t, err)
	// As the kubelet does with the API status that it has just generated.
	status.IPs = sortPodIPs(k.kubelet, status.IPs)
	if pod.Spec.HostNetwork {
		status.IPs = k.world.Node.IPs
	}
	require.NoError(t, os.MkdirAll(k.kubelet.GetPodDir(pod.UID), 0o750))
	pullSecrets := pullSecretsForPod(k.kubelet, klog.Background(), pod)
	result := k.runtime.SyncPod(ctx, pod, status, pullSecrets, k.backoff, false)
	for _, r := range result.SyncResults {
		if r.Error != nil && r.Action == kubecontainer.StartContainer {
			k.facts.set(fmt.Sprintf("container %v/reason", r.Target), r.Error.Error())
			k.facts.set(fmt.Sprintf("container %v/message", r.Target), r.Message)
		}
	}
}
