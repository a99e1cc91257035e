package main

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// nodeFacts is what pods' configurations take from this machine, as it is now.
func (a *agent) nodeFacts() podrunner.Facts {
	n := podrunner.Facts{
		Name:                a.opts.nodeName,
		IPs:                 a.host.ips,
		MemoryCapacityBytes: a.host.memory,
		Allocatable:         a.allocatable(),
		Objects:             a.objects,
		AppArmor:            a.host.appArmor,
		SELinux:             a.host.seLinux,
		Cgroups:             podrunner.Cgroups{V2: a.host.cgroupV2},
	}
	n.DNS.NoLookups = a.opts.ResolverConfig == ""
	if !n.DNS.NoLookups {
		n.DNS.Host, n.DNS.HostErr = readResolvConf(a.opts.ResolverConfig)
	}
	if text, err := os.ReadFile("/etc/hosts"); err == nil {
		n.HostsFile = text
	}
	n.Runtime, n.Handler = a.features.get()
	n.RuntimeHandler = a.features.handlerOf
	return n
}

func readResolvConf(file string) (*podrunner.ResolvConf, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	host, err := podrunner.ParseResolvConf(string(text))
	return &host, err
}

// allocatable is what the node has for pods.
func (a *agent) allocatable() corev1.ResourceList {
	return nodestatus.Allocatable(a.capacity(), a.reserved())
}

// reserved is what others need of the node, and what hard eviction keeps free.
func (a *agent) reserved() []corev1.ResourceList {
	return []corev1.ResourceList{a.opts.policies.Reserved, eviction.Reserved(a.capacity(), a.opts.policies.Eviction.Thresholds)}
}

// capacity is what the node has.
func (a *agent) capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(a.host.memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(diskBytes(a.node.rootDir), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(a.opts.policies.MaxPods), resource.DecimalSI),
	}
}

// self is this node as admission sees it.
func (a *agent) self(context.Context) (*corev1.Node, error) {
	n := a.nodeNow()
	return &n, nil
}

// features are what the runtime says that it can do.
type features struct {
	mu      sync.Mutex
	last    *runtimeapi.StatusResponse
	readyAt time.Time // when the runtime last said that it is ready
}

func (f *features) set(answer *runtimeapi.StatusResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = answer
	for _, c := range answer.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.RuntimeReady && c.GetStatus() {
			f.readyAt = time.Now()
		}
	}
}

// answers returns the runtime's last answers, for the node's status.
func (f *features) answers() nodestatus.Runtime {
	f.mu.Lock()
	defer f.mu.Unlock()
	return nodestatus.Runtime{Status: f.last, ReadyAt: f.readyAt}
}

// get returns the runtime's own, and those of its handlers by name.
func (f *features) get() (*runtimeapi.RuntimeFeatures, func(string) *runtimeapi.RuntimeHandlerFeatures) {
	f.mu.Lock()
	last := f.last
	f.mu.Unlock()
	return last.GetFeatures(), func(name string) *runtimeapi.RuntimeHandlerFeatures {
		for _, h := range last.GetRuntimeHandlers() {
			if h.GetName() == name {
				return h.GetFeatures()
			}
		}
		return nil
	}
}

// handlerOf returns the runtime handler of a runtime class. There is no API server
// that has RuntimeClasses: each of the runtime's handlers is one, of its own name.
func (f *features) handlerOf(class string) (string, error) {
	if _, handler := f.get(); handler(class) == nil {
		return "", fmt.Errorf("failed to get RuntimeClass %s: the runtime has no handler of that name", class)
	}
	return class, nil
}

// fileText is a file's content, empty where there is none.
func fileText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
