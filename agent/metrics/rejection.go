package metrics

import "strings"

// rejection returns the value of the label "reason". If the kubelet has the reason, the value is
// the reason itself. Otherwise the value is Other or OutOfExtendedResources, so that an admission
// handler with its own reasons does not create new series.
func rejection(reason string) string {
	switch reason {
	case "AppArmor", "Evicted", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "NodeShutdown",
		"OutOfcpu", "OutOfephemeral-storage", "OutOfmemory", "OutOfpods",
		"PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch",
		"SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TopologyAffinityError",
		"UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", "VolumeAttachmentLimitExceeded",
		"node(s) had taints that the pod didn't tolerate":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
