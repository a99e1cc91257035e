package requests

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// ours plays our side: a Runner, or the functions below it.
type ours struct {
	*player
	runner  *podrunner.Runner
	userIDs *podrunner.IDRanges
}

func playOurs(t *testing.T, w *world) []judge.Facts {
	t.Helper()
	p := newPlayer(t, w)
	defer p.close(t)
	o := &ours{player: p}
	var err error
	o.userIDs, err = podrunner.NewIDRanges(podrunner.IDRangesConfig{PodRoot: filepath.Join(p.root, "pods")})
	require.NoError(t, err)
	if w.Direct {
		return p.play(t, o.direct)
	}
	o.runner = o.newRunner(t)
	return p.play(t, o.turn)
}

func (o *ours) newRunner(t *testing.T) *podrunner.Runner {
	t.Helper()
	verify := images.NeverVerifyPreloadedImages
	switch n := o.world.Node; {
	case n.VerifyEveryPull:
		verify = images.AlwaysVerify
	case n.NeverVerifyPulls:
		verify = images.NeverVerify
	}
	pulls, err := images.New(images.Config{
		Images: o.imageService(), Objects: lookups{objects{world: o.world}}, Policy: images.Policy{Verify: verify}, Events: podEvents{o.facts}, Clock: o.clock,
	})
	require.NoError(t, err)
	hooks, err := lifecycle.NewHookRunner(lifecycle.HookConfig{Clock: o.clock})
	require.NoError(t, err)
	runner, err := podrunner.New(podrunner.Config{
		Sandboxes: o.runtimeService(), Containers: o.runtimeService(), Images: pulls,
		Volumes: volumes{world: o.world, root: o.root}, PodCgroups: podCgroups{o.world.Node}, UserIDs: o.userIDs, Hooks: hooks,
		Resizer: o.runtimeService(), LogRoot: o.logs(), ContainerLogs: o.links(), RootDir: o.root, Agent: "peer",
		Policy: o.world.ourPolicy(), Facts: func() podrunner.Facts { return o.nodeFacts(t) }, SeccompRoot: seccompRoot(o.root),
		Refresh: func(context.Context, types.UID) (*podcache.Status, error) { return o.status(), nil },
		Events:  podEvents{o.facts}, Clock: o.clock,
	})
	require.NoError(t, err)
	return runner
}

// turn syncs the pod once. A pod that the Runner rejects is not started.
func (o *ours) turn(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := o.runner.Unsupported(pod); err != nil {
		o.facts.set("refused", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	_, _ = o.runner.SyncPod(o.ctx(t), podworker.SyncRequest{Pod: pod, Status: o.status()})
	o.takeLinks(t)
	for name, waiting := range o.runner.Waiting(pod.UID) {
		o.facts.set("container "+name+"/reason", waiting.Reason)
		o.facts.set("container "+name+"/message", waiting.Message)
	}
}

func (o *ours) links() string { return filepath.Join(o.root, "links") }

// takeLinks adds facts about the new links to logs, and removes the links.
func (o *ours) takeLinks(t *testing.T) {
	t.Helper()
	links, err := os.ReadDir(o.links())
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	for _, l := range links {
		name := filepath.Join(o.links(), l.Name())
		log, err := os.Readlink(name)
		require.NoError(t, err)
		o.facts.link(log, l.Name())
		require.NoError(t, os.Remove(name))
	}
}

// status returns the pod's status in the runtime.
func (o *ours) status() *podcache.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	pod := o.world.Pod
	s := &podcache.Status{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace, SandboxOf: map[string]string{}}
	for _, b := range slices.Backward(o.sandboxes) {
		s.Sandboxes = append(s.Sandboxes, o.sandboxStatus(b))
	}
	for _, c := range slices.Backward(o.containers) {
		s.Containers = append(s.Containers, c.status)
		s.SandboxOf[c.status.GetId()] = c.box
	}
	return s
}

// node returns the world's node in our types, as a Runner computes it.
func (o *ours) node(t *testing.T) podrunner.Node {
	t.Helper()
	return podrunner.Node{Policy: o.world.ourPolicy(), Facts: o.nodeFacts(t), SeccompRoot: seccompRoot(o.root)}
}

func seccompRoot(root string) string { return filepath.Join(root, "seccomp") }

// nodeFacts returns the facts of the world's node, with the machine's hosts file.
func (o *ours) nodeFacts(t *testing.T) podrunner.Facts {
	t.Helper()
	n := o.world.ourFacts()
	var err error
	n.HostsFile, err = os.ReadFile("/etc/hosts")
	require.NoError(t, err)
	return n
}

func (w *world) ourPolicy() podrunner.Policy {
	n := w.Node
	ours := podrunner.Policy{
		ClusterDNS: n.ClusterDNS, ClusterDomain: n.ClusterDomain, SeccompDefault: n.SeccompDefault,
		Limits: podrunner.Limits{
			LimitedSwap: n.SwapBehavior == "LimitedSwap", NoCPUQuota: !n.CFSQuota, CPUPeriod: n.CFSPeriod,
			SingleProcessOOMKill: n.SingleOOMKill == nil || *n.SingleOOMKill,
		},
	}
	if n.MemoryQoS {
		ours.Limits.MemoryThrottling, ours.Limits.TieredMemoryReservation = n.ThrottlingFactor, n.TieredReservation
	}
	return ours
}

func (w *world) ourFacts() podrunner.Facts {
	n := w.Node
	ours := podrunner.Facts{
		Name: "node-1", IPs: n.IPs, MemoryCapacityBytes: n.Memory, Allocatable: n.Allocatable, Objects: lookups{objects{world: w}},
		Services: func(namespace string) (all []*corev1.Service, err error) {
			for _, s := range w.Services {
				if s.Namespace == namespace {
					all = append(all, s)
				}
			}
			return all, nil
		},
		DNS: podrunner.DNS{NoLookups: n.ResolvConf == nil}, AppArmor: true, SELinux: n.SELinux,
		RuntimeHandler: func(class string) (string, error) {
			handler, ok := n.RuntimeClasses[class]
			if !ok {
				return "", apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), class)
			}
			return handler, nil
		},
		Handler: func(handler string) *runtimeapi.RuntimeHandlerFeatures {
			return &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: n.can(handler), RecursiveReadOnlyMounts: n.can(handler)}
		},
		Runtime: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
		Cgroups: podrunner.Cgroups{
			V2: n.CgroupV2, SwapAccounting: n.SwapController, SwapCapacityBytes: n.Swap, HugePageSizes: pageSizes(n.HugePages),
		},
	}
	if n.ResolvConf != nil {
		host, err := podrunner.ParseResolvConf(*n.ResolvConf)
		ours.DNS.Host, ours.DNS.HostErr = &host, err
	}
	return ours
}

// pageSizes parses page sizes as in cgroup file names: 2MB or 64KB.
func pageSizes(names []string) (sizes []int64) {
	for _, name := range names {
		size := resource.MustParse(strings.Replace(strings.TrimSuffix(name, "B"), "K", "k", 1))
		sizes = append(sizes, map[string]int64{"2M": 2 << 20, "1G": 1 << 30, "64k": 64 << 10}[size.String()])
	}
	return sizes
}

// podEvents records events.
type podEvents struct{ facts *recorder }

func (e podEvents) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	events(e).Eventf(object, eventType, reason, format, args...)
}

// podCgroups names the pod's cgroup as cgroups does.
type podCgroups struct{ node node }

func (c podCgroups) Ensure(_ context.Context, pod *corev1.Pod, _ time.Duration) (string, error) {
	if c.node.SystemdCgroups {
		return cgroups.PodName(pod).Systemd(), nil
	}
	return cgroups.PodName(pod).Cgroupfs(), nil
}

func (podCgroups) Update(context.Context, *corev1.Pod, time.Duration) error { return nil }
func (podCgroups) Remove(context.Context, types.UID) error                  { return nil }

// volumes is a volume manager whose volumes are already mounted.
type volumes struct {
	world *world
	root  string
}

func (v volumes) Mount(context.Context, *corev1.Pod) (map[string]string, map[string]bool, error) {
	paths := map[string]string{}
	for i := range v.world.Pod.Spec.Volumes {
		if volume := &v.world.Pod.Spec.Volumes[i]; volume.Image == nil {
			paths[volume.Name] = volumePath(v.root, volume.Name)
		}
	}
	return paths, nil, nil
}

func (volumes) Unsupported(*corev1.Pod) error              { return nil }
func (volumes) Refresh(context.Context, *corev1.Pod) error { return nil }
func (volumes) Unmount(context.Context, types.UID) error   { return nil }
func (volumes) Pods() ([]types.UID, error)                 { return nil, nil }
