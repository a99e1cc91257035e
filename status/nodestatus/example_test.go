package nodestatus_test

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// A node is ready and runs out of disk space. After that its status does not change.
func Example() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	facts := nodestatus.Facts{
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:              resource.MustParse("4"),
			corev1.ResourceMemory:           resource.MustParse("16Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		},
		Reserved:  []corev1.ResourceList{{corev1.ResourceMemory: resource.MustParse("1Gi")}},
		MaxPods:   110,
		Addresses: nodestatus.Addresses{Hostname: "node-1", NodeIPs: []netip.Addr{netip.MustParseAddr("10.0.0.7")}},
		Runtime: nodestatus.Runtime{
			Version: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.1.4"},
			Status: &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
				{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
			}}},
			ReadyAt: now,
		},
	}
	first := nodestatus.Next(nil, facts, now)
	memory := first.Allocatable[corev1.ResourceMemory]
	fmt.Println(first.NodeInfo.ContainerRuntimeVersion, first.Addresses[0].Address, memory.String())

	now = now.Add(10 * time.Second)
	facts.Pressure = []corev1.NodeConditionType{corev1.NodeDiskPressure}
	second := nodestatus.Next(first, facts, now)
	for _, e := range nodestatus.Events("node-1", first, second) {
		fmt.Println(e.Reason)
	}
	fmt.Println(nodestatus.ReportDue(first, second, now.Add(-10*time.Second), now, nodestatus.ReportPeriod))

	later := now.Add(10 * time.Second)
	third := nodestatus.Next(second, facts, later)
	fmt.Println(nodestatus.ReportDue(second, third, now, later, nodestatus.ReportPeriod))
	// Output:
	// containerd://2.1.4 10.0.0.7 15Gi
	// NodeHasDiskPressure
	// true
	// false
}
