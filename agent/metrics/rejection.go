package metrics

import "strings"

// rejection is the label for a reason: one of those that the kubelet knows, or a word
// for all others, so that a handler that makes up reasons makes no series of its own.
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
