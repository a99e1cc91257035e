package nodestatus

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// period is the report period.
const period = 5 * time.Minute

// statusFacts records all fields of a status.
func statusFacts(s *corev1.NodeStatus) judge.Facts {
	f := judge.Facts{
		"addresses": fmt.Sprint(s.Addresses),
		"port":      strconv.Itoa(int(s.DaemonEndpoints.KubeletEndpoint.Port)),
		"attached":  fmt.Sprint(s.VolumesAttached),

		"info/machine":     s.NodeInfo.MachineID,
		"info/system":      s.NodeInfo.SystemUUID,
		"info/boot":        s.NodeInfo.BootID,
		"info/kernel":      s.NodeInfo.KernelVersion,
		"info/os":          s.NodeInfo.OSImage,
		"info/runtime":     s.NodeInfo.ContainerRuntimeVersion,
		"info/kubelet":     s.NodeInfo.KubeletVersion,
		"info/system kind": s.NodeInfo.OperatingSystem + "/" + s.NodeInfo.Architecture,
	}
	if s.NodeInfo.Swap != nil {
		f["info/swap"] = strconv.FormatInt(*s.NodeInfo.Swap.Capacity, 10)
	}
	for _, img := range s.Images {
		f["images"] += fmt.Sprintf("%v %d; ", img.Names, img.SizeBytes)
	}
	for name, q := range s.Capacity {
		f["capacity "+string(name)] = strconv.FormatInt(q.MilliValue(), 10)
	}
	for name, q := range s.Allocatable {
		f["allocatable "+string(name)] = strconv.FormatInt(q.MilliValue(), 10)
	}
	for _, h := range s.RuntimeHandlers {
		f["handlers"] += fmt.Sprintf("%q %t %t; ", h.Name, *h.Features.RecursiveReadOnlyMounts, *h.Features.UserNamespaces)
	}
	if s.Features != nil {
		f["features"] = fmt.Sprint(*s.Features.SupplementalGroupsPolicy)
	}
	for _, c := range s.Conditions {
		f["conditions"] += string(c.Type) + " "
		name := "condition " + string(c.Type)
		f[name+"/status"] = string(c.Status)
		f[name+"/reason"] = c.Reason
		f[name+"/message"] = c.Message
		f[name+"/transition"] = c.LastTransitionTime.Format(time.RFC3339Nano)
		f[name+"/heartbeat"] = c.LastHeartbeatTime.Format(time.RFC3339Nano)
	}
	return f
}

func addEvent(f judge.Facts, kind, reason, message string) {
	f["events"] += fmt.Sprintf("%s %s %s; ", kind, reason, message)
}

// decide records whether a status has changed and is reported.
func decide(f judge.Facts, changed, due bool) {
	f["changed"], f["due"] = strconv.FormatBool(changed), strconv.FormatBool(due)
}

// milli prints a number in thousandths, as facts about resources do.
func milli(n int64) string { return strconv.FormatInt(n*1000, 10) }
