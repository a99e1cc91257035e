package podrunner

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// sandbox plans a new sandbox if the newest sandbox can't be used.
func (p *planner) sandbox() {
	if len(p.Status.Sandboxes) == 0 {
		p.CreateSandbox = "the pod has no sandbox"
		return
	}
	newest, ready := p.Status.Sandboxes[0], 0
	for _, s := range p.Status.Sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	network := newest.GetLinux().GetNamespaces().GetOptions().GetNetwork()
	switch {
	case newest.GetId() == p.Replaced:
		p.CreateSandbox = "a restart of the pod was requested"
	case newest.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		p.CreateSandbox = "the sandbox is not ready"
	case ready > 1:
		p.CreateSandbox = "the pod has several ready sandboxes"
	case newest.GetLinux() != nil && network != networkMode(p.Pod):
		p.CreateSandbox = "the sandbox has another network mode"
	case !p.Pod.Spec.HostNetwork && newest.GetNetwork() != nil && newest.GetNetwork().GetIp() == "":
		p.CreateSandbox = "the sandbox has no address"
	}
	if p.CreateSandbox != "" {
		p.SandboxAttempt = newest.GetMetadata().GetAttempt() + 1
	}
}

// delaySandbox changes the plan while the sandbox backs off. It removes the
// creation of the sandbox, and the starts of containers in it. Without this
// back-off, a sandbox that ends at once would be created again without a delay.
func (p *planner) delaySandbox() {
	if p.CreateSandbox == "" || len(p.Status.Sandboxes) == 0 || p.Backoff == nil {
		return
	}
	until, delay, waiting := p.Backoff(sandboxKey(p.Pod.UID), createdAt(p.Status.Sandboxes[0]))
	if !waiting {
		return
	}
	for _, s := range p.Start {
		p.wait(s.Name, lifecycle.CrashLoopBackOff, fmt.Sprintf("back-off %s re-creating failed sandbox of pod=%s", delay, podID(p.Pod)))
	}
	p.retry(until)
	p.CreateSandbox, p.SandboxAttempt, p.Start = "", 0, nil
	if !p.runs() {
		p.StopPod = ""
	}
}

// sandboxKey returns the key of the back-off of a pod's sandbox.
func sandboxKey(uid types.UID) string { return string(uid) + "/sandbox" }

// createdAt returns when s was created. The CRI does not report when a sandbox
// ended.
func createdAt(s *runtimeapi.PodSandboxStatus) time.Time { return time.Unix(0, s.GetCreatedAt()) }
