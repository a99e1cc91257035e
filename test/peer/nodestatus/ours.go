package nodestatus

import (
	"fmt"
	"net/netip"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	componentversion "k8s.io/component-base/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/status/nodestatus"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// machineCapacity returns the capacity of the machine in a step, nil if it is unknown.
func (w *World) machineCapacity(s *Step) corev1.ResourceList {
	m := s.Machine
	if m == nil {
		return nil
	}
	all := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(m.Cores), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
	}
	for size, n := range m.Pages {
		bytes := resource.NewQuantity(size<<10, resource.BinarySI)
		all[corev1.ResourceName(corev1.ResourceHugePagesPrefix+bytes.String())] = *resource.NewQuantity(n*size<<10, resource.BinarySI)
	}
	if m.Storage >= 0 && !w.NoIsolated {
		all[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(m.Storage, resource.BinarySI)
	}
	return all
}

// facts returns the input that the kubelet's side gets, in our type.
func (w *World) facts(s *Step, answers nodestatus.Runtime) nodestatus.Facts {
	f := nodestatus.Facts{
		Capacity: w.machineCapacity(s), MaxPods: w.MaxPods, PodsPerCore: w.PerCore, NoLocalStorageIsolation: w.NoIsolated,
		Extended: s.Devices.extended(),
		Info: corev1.NodeSystemInfo{
			KernelVersion: "6.1", OSImage: "Debian", KubeletVersion: componentversion.Get().String(),
			OperatingSystem: goruntime.GOOS, Architecture: goruntime.GOARCH,
		},
		Addresses: nodestatus.Addresses{Hostname: w.Hostname, NodeIPs: addrs(w.NodeIPs...), ExternalCloudProvider: w.Cloud},
		Port:      10250, Runtime: answers, Images: nodestatus.Images(s.Images, w.MaxImages),
		Problems: nodestatus.Problems{Storage: s.Storage, ShuttingDown: s.Shutdown, Warning: s.Warning},
	}
	thresholds := make([]eviction.Threshold, len(w.Thresholds))
	for i, t := range w.Thresholds {
		thresholds[i] = eviction.Threshold{Signal: eviction.Signal(t.Signal), Value: eviction.Value{Quantity: t.Quantity, Fraction: t.Percentage}}
	}
	f.Reserved = append(w.Reserved[:], eviction.Reserved(f.Capacity, thresholds))
	if s.Machine != nil {
		f.SwapBytes = s.Machine.Swap
		f.Info.MachineID, f.Info.SystemUUID, f.Info.BootID = s.Machine.ID, s.Machine.System, s.Machine.Boot
	}
	if w.NodeName != "" {
		f.Addresses.Resolved = addrs(w.NodeName)
	}
	if w.Default != "" {
		f.Addresses.Default = netip.MustParseAddr(w.Default)
	}
	if !s.NoVersion {
		f.Runtime.Version = &runtimeapi.VersionResponse{RuntimeName: s.Name, RuntimeVersion: s.Version}
	}
	if s.Health != "" {
		f.Problems.Health = []string{"PLEG is not healthy: " + s.Health}
	}
	for kind, holds := range s.Pressure {
		if holds {
			f.Pressure = append(f.Pressure, kind)
		}
	}
	return f
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// extended returns the devices as facts. A removed resource has 0 devices.
func (d devices) extended() nodestatus.Extended {
	e := nodestatus.Extended{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}}
	for name, n := range d.Whole {
		e.Capacity[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	for name, n := range d.Healthy {
		e.Allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	for _, name := range d.Removed {
		e.Capacity[corev1.ResourceName(name)] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	return e
}

func playOurs(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		previous := &corev1.NodeStatus{}
		var answers nodestatus.Runtime
		var reported time.Time
		var delay time.Duration
		for _, step := range w.Steps {
			time.Sleep(step.Wait)
			if step.Restart {
				answers, reported, delay = nodestatus.Runtime{}, time.Time{}, 0
			}
			now := time.Now()
			step.Edit.write(previous, now)
			if step.Asked && step.Status != nil {
				answers.Status = step.Status
				for _, c := range step.Status.Status.Conditions {
					if c.Type == runtimeapi.RuntimeReady && c.Status {
						answers.ReadyAt = now
					}
				}
			}
			before := fmt.Sprint(previous)
			next := nodestatus.Next(previous, w.facts(step, answers), now)
			f := statusFacts(next)
			for _, e := range nodestatus.Events("n", previous, next) {
				addEvent(f, e.Type, e.Reason, e.Message)
			}
			// If the last report was just now, only a change can make the next report due.
			changed := nodestatus.ReportDue(previous, next, now, now, period)
			due := nodestatus.ReportDue(previous, next, reported, now, period+delay)
			decide(f, changed, due)
			if before != fmt.Sprint(previous) {
				f["previous"] = "modified"
			}
			if due {
				delay = 0
				if changed || reported.IsZero() {
					delay = step.Delay
				}
				previous, reported = next, now
			}
			all = append(all, f)
		}
	})
	return all
}
