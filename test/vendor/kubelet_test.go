package vendor_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"example.com/vendor"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hook is one connection of the vendor's kubelet with the agent.
type hook struct {
	name string
	// check returns an error if the hook had no effect in a finished run.
	check func(*outcome) error
	// disconnect removes the hook.
	disconnect func(*vendor.Config)
	// fails is the error of check without the hook.
	fails string
}

func hooks() []hook {
	return []hook{
		{"source", ordersRun, inAgent(func(c *agent.Config) {
			c.Sources = []agent.Source{{Name: "idle", Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
				set(ctx, nil)
				<-ctx.Done()
				return nil
			}}}
		}), "pod shares does not run"},
		{"volume plugin", licenceIsMounted, withoutVolumes, "licence is not mounted"},
		{"volume plugin: Supports", unknownLicenceIsRefused, withoutVolumes, "volume type csi is not supported"},
		{"volume plugin: TearDown", foldersAreRemoved, inAgent(func(c *agent.Config) {
			c.Volumes = []volumes.Plugin{stuck{c.Volumes[0]}}
		}), "uid-licensed"},
		{"allocator", podsArePinned, withoutAllocators, "pod first has CPUs \"\""},
		{"allocator: Admit", emptyShareIsRefused, withoutAllocators, "greedy is not refused"},
		{"allocator: Container of what runs", sharedPoolShrinks, ledger(func(p *altered) {
			p.container = func(r resources.ContainerRequest) bool { return r.ID == "" }
		}), "pod shares has CPUs \"0-5\""},
		{"allocator: Release", sharedPoolGrows, ledger(func(p *altered) { p.noRelease = true }), "pod shares has CPUs \"4-5\""},
		{"allocator: Restore", pinsOutliveTheAgent, ledger(func(p *altered) { p.noRestore = true }), "pod second has CPUs \"0-1\""},
		{"status sink", statusesArePublished, inAgent(func(c *agent.Config) { c.Statuses = nil }), "pod shares has the status \"\""},
		{"status sink: Forget", statusesAreForgotten, inAgent(func(c *agent.Config) {
			c.Statuses = status.SinkFunc(c.Statuses.Publish)
		}), "statuses of removed pods"},
		{"admission handler", strangerIsRefused, inAgent(func(c *agent.Config) { c.Admission = nil }), "stranger is not refused"},
		{"observers", eventsAreCounted, inAgent(func(c *agent.Config) { c.Observers = agent.Observers{} }), "kubelet_started_containers_total"},
		{"registry", podsAreGauged, func(c *vendor.Config) { c.Registry = prometheus.NewRegistry() }, "kubelet_running_pods"},
	}
}

// TestKubelet_EverythingTogether has all hooks connected.
func TestKubelet_EverythingTogether(t *testing.T) {
	o := play(t, nil)
	for _, h := range hooks() {
		require.NoError(t, h.check(o), h.name)
	}
}

// TestKubelet_WithoutAHook disconnects one hook at a time. The check of that hook must
// fail.
func TestKubelet_WithoutAHook(t *testing.T) {
	for _, h := range hooks() {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, h.check(play(t, h.disconnect)), h.fails)
		})
	}
}

// TestKubelet_ImportsNothingInternal lists what the vendor's package imports.
func TestKubelet_ImportsNothingInternal(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, ".")
	out, err := list.Output()
	require.NoError(t, err)
	imports := strings.Fields(string(out))
	require.Contains(t, imports, "github.com/kubeparts/kubeparts/agent")
	for _, path := range imports {
		require.NotContains(t, path+"/", "/internal/")
	}
}

func inAgent(change func(*agent.Config)) func(*vendor.Config) {
	return func(c *vendor.Config) { c.Agent = change }
}

func withoutVolumes(c *vendor.Config) { inAgent(func(a *agent.Config) { a.Volumes = nil })(c) }

func withoutAllocators(c *vendor.Config) { inAgent(func(a *agent.Config) { a.Allocators = nil })(c) }

// ledger disconnects single methods of the allocator.
func ledger(change func(*altered)) func(*vendor.Config) {
	return inAgent(func(c *agent.Config) {
		p := &altered{Allocator: c.Allocators[0]}
		change(p)
		c.Allocators = []resources.Allocator{p}
	})
}

// altered is an allocator without some of its methods.
type altered struct {
	resources.Allocator

	noRestore, noRelease bool
	container            func(resources.ContainerRequest) bool
}

func (a *altered) Restore(ctx context.Context, found []*podcache.Status) error {
	if a.noRestore {
		return nil
	}
	return a.Allocator.Restore(ctx, found)
}

func (a *altered) Container(ctx context.Context, r resources.ContainerRequest) (resources.Injection, error) {
	if a.container != nil && !a.container(r) {
		return resources.Injection{}, nil
	}
	return a.Allocator.Container(ctx, r)
}

func (a *altered) Release(pod types.UID) {
	if !a.noRelease {
		a.Allocator.Release(pod)
	}
}

// stuck is a volume plugin that can't tear volumes down.
type stuck struct{ volumes.Plugin }

func (stuck) TearDown(context.Context, volumes.Ref) error { return errors.New("stuck") }

// The checks of the hooks.

func ordersRun(o *outcome) error {
	for _, name := range []string{"shares", "licensed"} {
		if _, runs := o.begun.cpus[name]; !runs {
			return fmt.Errorf("pod %s does not run", name)
		}
	}
	return nil
}

func licenceIsMounted(o *outcome) error {
	if o.begun.licences["licensed"] != "to run" || o.again.licences["licensed"] != "to run" {
		return fmt.Errorf("the licence is not mounted: %q, after a restart %q", o.begun.licences, o.again.licences)
	}
	return nil
}

func unknownLicenceIsRefused(o *outcome) error {
	return refused(o.begun, "pirate", "spec.volumes[0].csi: ", `volumeAttributes[licence]: unknown licence "pirated"`)
}

func strangerIsRefused(o *outcome) error {
	return refused(o.begun, "stranger", "NoTenant", `namespace "stranger" is not a tenant of this node`)
}

func emptyShareIsRefused(o *outcome) error {
	return refused(o.pinned, "greedy", "NoFreeCPUs", "want 2 of 2 shared CPUs, one must stay")
}

// refused returns an error if the pod was not refused with these words.
func refused(s scene, pod string, words ...string) error {
	message, is := s.refusals[pod]
	if !is {
		return fmt.Errorf("pod %s is not refused", pod)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			return fmt.Errorf("the refusal of pod %s does not have %q: %s", pod, word, message)
		}
	}
	return nil
}

func foldersAreRemoved(o *outcome) error {
	if len(o.left) != 1 || !strings.HasSuffix(o.left[0], "/uid-shares") {
		return fmt.Errorf("folders of removed pods are left: %s", o.left)
	}
	return nil
}

// share is the CPUs of one pod.
type share struct{ pod, cpus string }

// shares returns an error for the first pod that runs on other CPUs.
func shares(s scene, want ...share) error {
	for _, w := range want {
		if got := s.cpus[w.pod]; got != w.cpus {
			return fmt.Errorf("pod %s has CPUs %q, want %q", w.pod, got, w.cpus)
		}
	}
	return nil
}

func podsArePinned(o *outcome) error {
	return shares(o.pinned, share{"first", "0-1"}, share{"second", "2-3"})
}

func sharedPoolShrinks(o *outcome) error {
	if err := shares(o.pinned, share{"shares", "4-5"}, share{"licensed", "4-5"}); err != nil {
		return err
	}
	// There is one update for each pinned pod, because the container was not created
	// again.
	if o.begun.updates["shares"] != 0 || o.pinned.updates["shares"] != 2 {
		return fmt.Errorf("the container of pod shares was updated %d times, want 2", o.pinned.updates["shares"])
	}
	return shares(o.begun, share{"shares", "0-5"})
}

func sharedPoolGrows(o *outcome) error {
	return errors.Join(shares(o.released, share{"shares", "0-1,4-5"}), shares(o.ended, share{"shares", "0-5"}))
}

func pinsOutliveTheAgent(o *outcome) error {
	if err := shares(o.again, share{"second", "2-3"}, share{"shares", "0-1,4-5"}); err != nil {
		return err
	}
	if before, after := o.released.updates["second"], o.again.updates["second"]; before != after {
		return fmt.Errorf("the restart updated the container of pod second %d times", after-before)
	}
	return shares(o.late, share{"second", "2-3"}, share{"late", "0"}, share{"shares", "1,4-5"})
}

func statusesArePublished(o *outcome) error {
	for _, w := range []struct {
		pod   string
		phase corev1.PodPhase
	}{{"shares", corev1.PodRunning}, {"licensed", corev1.PodRunning}, {"stranger", corev1.PodFailed}} {
		if got := o.begun.statuses[w.pod]; got != w.phase {
			return fmt.Errorf("pod %s has the status %q, want %q", w.pod, got, w.phase)
		}
	}
	return nil
}

func statusesAreForgotten(o *outcome) error {
	if len(o.ended.statuses) != 1 {
		return fmt.Errorf("the sink still has statuses of removed pods: %v", o.ended.statuses)
	}
	return nil
}

func eventsAreCounted(o *outcome) error {
	if got := o.pinned.metrics["kubelet_started_containers_total"]["container"]; got != 4 {
		return fmt.Errorf("kubelet_started_containers_total is %v, want 4", got)
	}
	// All reasons of a vendor are in one series. A refused static pod goes through
	// admission again.
	if got := o.pinned.metrics["kubelet_admission_rejections_total"]; got["Other"] < 3 {
		return fmt.Errorf("kubelet_admission_rejections_total is %v", got)
	}
	return nil
}

func podsAreGauged(o *outcome) error {
	if got := o.pinned.metrics["kubelet_running_pods"][""]; got != 4 {
		return fmt.Errorf("kubelet_running_pods is %v, want 4", got)
	}
	if got := o.pinned.metrics["kubelet_node_name"]["vendor-node"]; got != 1 {
		return fmt.Errorf("kubelet_node_name is %v", o.pinned.metrics["kubelet_node_name"])
	}
	return nil
}
