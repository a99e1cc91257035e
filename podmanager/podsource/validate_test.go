package podsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireBadField requires that text is rejected with one line that contains want.
func requireBadField(t *testing.T, text, want string) {
	t.Helper()
	got := decodeErr(t, "f.yaml", text)
	require.Contains(t, got, want)
	require.True(t, strings.HasPrefix(got, "f.yaml: document 1: "), got)
	require.NotContains(t, got, "\n")
}

func TestCheckFields_EveryUnknownFieldAndWrongType(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"unknown field": {
			podWith("", "prots: []"),
			"spec.containers[0].prots: Forbidden: unknown field",
		},
		"field in wrong case": {
			podWith("HostNetwork: true", ""),
			"spec.HostNetwork: Forbidden: unknown field",
		},
		"number for string": {
			podWith("hostname: 5", ""),
			"spec.hostname: Invalid value: 5: must be a string, not a number",
		},
		"string for number": {
			podWith("", "ports: [{containerPort: http}]"),
			`spec.containers[0].ports[0].containerPort: Invalid value: "http": must be an integer of 32 bits, not a string`,
		},
		"number too large": {
			podWith("", "ports: [{containerPort: 9999999999}]"),
			"spec.containers[0].ports[0].containerPort: Invalid value: 9999999999: must be an integer of 32 bits, not a number",
		},
		"fraction": {
			podWith("terminationGracePeriodSeconds: 1.5", ""),
			"spec.terminationGracePeriodSeconds: Invalid value: 1.5: must be an integer of 64 bits, not a number",
		},
		"string for bool": {
			podWith(`hostPID: "true"`, ""),
			`spec.hostPID: Invalid value: "true": must be true or false, not a string`,
		},
		"object for list": {
			podWith("", "ports: {a: b}"),
			`spec.containers[0].ports: Invalid value: {"a":"b"}: must be a list, not an object`,
		},
		"list for object": {
			podWith("securityContext: [1]", ""),
			"spec.securityContext: Invalid value: [1]: must be an object, not a list",
		},
		"string for map": {
			podWith("nodeSelector: a", ""),
			`spec.nodeSelector: Invalid value: "a": must be an object, not a string`,
		},
		"number in map": {
			podWith("nodeSelector: {a: 1}", ""),
			"spec.nodeSelector[a]: Invalid value: 1: must be a string, not a number",
		},
		"bad quantity": {
			podWith("", "resources: {limits: {cpu: lots}}"),
			`spec.containers[0].resources.limits[cpu]: Invalid value: "lots": quantities must match`,
		},
		"bad port": {
			podWith("", "livenessProbe: {tcpSocket: {port: true}}"),
			"spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: true: json: cannot unmarshal",
		},
		"bad time": {
			"apiVersion: v1\nkind: Pod\nmetadata: {creationTimestamp: today}\n",
			`metadata.creationTimestamp: Invalid value: "today"`,
		},
		"long value": {
			podWith("hostNetwork: "+strings.Repeat("ä", 50), ""),
			"must be true or false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireBadField(t, c.text, c.want)
		})
	}
}

func TestValidate_InvalidValues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		// Metadata.
		"no name": {
			strings.Replace(podWith("", ""), "name: a", "labels: {}", 1),
			"metadata.name: Required value",
		},
		"bad name": {
			strings.Replace(podWith("", ""), "name: a", "name: A_b", 1),
			`metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain`,
		},
		"long name": {
			strings.Replace(podWith("", ""), "name: a", "name: "+strings.Repeat("a", 250), 1),
			"together with the name of the node, must be no more than 253",
		},
		"bad namespace": {
			strings.Replace(podWith("", ""), "name: a", "name: a, namespace: a.b", 1),
			`metadata.namespace: Invalid value: "a.b"`,
		},
		"UID as path": {
			strings.Replace(podWith("", ""), "name: a", "name: a, uid: ../..", 1),
			`metadata.uid: Invalid value: "../.."`,
		},
		"UID in two": {
			strings.Replace(podWith("", ""), "name: a", "name: a, uid: a_b", 1),
			"metadata.uid: Invalid value: \"a_b\": must not contain an underscore",
		},
		"bad label": {
			strings.Replace(podWith("", ""), "name: a", `name: a, labels: {"a b": c}`, 1),
			`metadata.labels: Invalid value: "a b"`,
		},
		"bad annotation": {
			strings.Replace(podWith("", ""), "name: a", `name: a, annotations: {"a b": c}`, 1),
			`metadata.annotations: Invalid value: "a b"`,
		},
		"a mirror": {
			strings.Replace(podWith("", ""), "name: a", `name: a, annotations: {kubernetes.io/config.mirror: x}`, 1),
			"metadata.annotations[kubernetes.io/config.mirror]: Forbidden",
		},
		"deleted already": {
			strings.Replace(podWith("", ""), "name: a", `name: a, deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 1`, 1),
			"metadata.deletionTimestamp: Forbidden: remove the manifest instead; metadata.deletionGracePeriodSeconds: Forbidden",
		},

		// Pod.
		"no spec": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}",
			"spec.containers: Required value: a pod must have at least one container",
		},
		"restart policy": {
			podWith("restartPolicy: Sometimes", ""),
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`,
		},
		"DNS policy": {
			podWith("dnsPolicy: Any", ""),
			`spec.dnsPolicy: Unsupported value: "Any"`,
		},
		"DNS policy None": {
			podWith("dnsPolicy: None", ""),
			"spec.dnsConfig.nameservers: Required value: must be set if dnsPolicy is None",
		},
		"users and groups": {
			podWith("securityContext: {runAsUser: -1, runAsGroup: 2147483648, fsGroup: 4294967296, supplementalGroups: [2147483647, -2]}", ""),
			"spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive; " +
				"spec.securityContext.runAsGroup: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive; " +
				"spec.securityContext.fsGroup: Invalid value: 4294967296: must be between 0 and 2147483647, inclusive; " +
				"spec.securityContext.supplementalGroups[1]: Invalid value: -2",
		},
		"deadline": {
			podWith("activeDeadlineSeconds: 0", ""),
			"spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647",
		},
		"hostname": {
			podWith("hostname: a.b", ""),
			`spec.hostname: Invalid value: "a.b"`,
		},
		"pod resources": {
			podWith("resources: {requests: {cpu: 2}, limits: {cpu: 1}}", ""),
			`spec.resources.requests[cpu]: Invalid value: "2": must not be more than the limit of 1`,
		},
		"ephemeral containers": {
			podWith("ephemeralContainers: [{name: e, image: i}]", ""),
			"spec.ephemeralContainers: Forbidden",
		},

		// Volumes.
		"volume name": {
			podWith("volumes: [{name: A}]", ""),
			`spec.volumes[0].name: Invalid value: "A"`,
		},
		"volume twice": {
			podWith("volumes: [{name: v}, {name: v}]", ""),
			`spec.volumes[1].name: Duplicate value: "v"`,
		},
		"two sources": {
			podWith("volumes: [{name: v, emptyDir: {}, hostPath: {path: /a}}]", ""),
			"spec.volumes[0]: Forbidden: must not have more than one source",
		},
		"host path missing": {
			podWith("volumes: [{name: v, hostPath: {}}]", ""),
			"spec.volumes[0].hostPath.path: Required value",
		},
		"host path up": {
			podWith("volumes: [{name: v, hostPath: {path: /a/../b}}]", ""),
			`spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain ".."`,
		},
		"size limit": {
			podWith("volumes: [{name: v, emptyDir: {sizeLimit: -1}}]", ""),
			`spec.volumes[0].emptyDir.sizeLimit: Invalid value: "-1": must not be negative`,
		},
		"secret item": {
			podWith("volumes: [{name: v, secret: {items: [{key: k, path: ../x}]}}]", ""),
			`spec.volumes[0].secret.items[0].path: Invalid value: "../x"`,
		},
		"config item": {
			podWith("volumes: [{name: v, configMap: {items: [{key: k, path: /x}]}}]", ""),
			`spec.volumes[0].configMap.items[0].path: Invalid value: "/x": must be a relative path`,
		},
		"downward item": {
			podWith("volumes: [{name: v, downwardAPI: {items: [{fieldRef: {fieldPath: a}}]}}]", ""),
			"spec.volumes[0].downwardAPI.items[0].path: Required value",
		},
		"projected secret": {
			podWith("volumes: [{name: v, projected: {sources: [{secret: {items: [{key: k, path: ..}]}}]}}]", ""),
			"spec.volumes[0].projected.sources[0].secret.items[0].path: Invalid value",
		},
		"projected config": {
			podWith("volumes: [{name: v, projected: {sources: [{configMap: {items: [{key: k, path: ..}]}}]}}]", ""),
			"spec.volumes[0].projected.sources[0].configMap.items[0].path: Invalid value",
		},
		"projected downward": {
			podWith("volumes: [{name: v, projected: {sources: [{downwardAPI: {items: [{path: .., fieldRef: {fieldPath: a}}]}}]}}]", ""),
			"spec.volumes[0].projected.sources[0].downwardAPI.items[0].path: Invalid value",
		},
		"projected token": {
			podWith("volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: ..}}]}}]", ""),
			"spec.volumes[0].projected.sources[0].serviceAccountToken.path: Invalid value",
		},
		"mount of nothing": {
			podWith("", "volumeMounts: [{mountPath: /a}]"),
			"spec.containers[0].volumeMounts[0].name: Required value",
		},
		"mount of unknown": {
			podWith("", "volumeMounts: [{name: v, mountPath: /a}]"),
			`spec.containers[0].volumeMounts[0].name: Not found: "v"`,
		},
		"mount nowhere": {
			podWith("volumes: [{name: v}]", "volumeMounts: [{name: v}]"),
			"spec.containers[0].volumeMounts[0].mountPath: Required value",
		},
		"mount twice": {
			podWith("volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]"),
			`spec.containers[0].volumeMounts[1].mountPath: Duplicate value: "/a"`,
		},
		"sub-path up": {
			podWith("volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /a, subPath: a/../../b}]"),
			`spec.containers[0].volumeMounts[0].subPath: Invalid value`,
		},
		"two sub-paths": {
			podWith("volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /a, subPath: a, subPathExpr: b}]"),
			"spec.containers[0].volumeMounts[0].subPathExpr: Forbidden",
		},
		"device of unknown": {
			podWith("", "volumeDevices: [{name: v, devicePath: /dev/a}]"),
			`spec.containers[0].volumeDevices[0].name: Not found: "v"`,
		},
		"list for string": {
			podWith("", "env: [{name: A, value: [1]}]"),
			"spec.containers[0].env[0].value: Invalid value: [1]: must be a string, not a list",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireBadField(t, c.text, c.want)
		})
	}
}
