package podsource

import "testing"

func TestValidate_InvalidValuesOfAContainer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no container": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}",
			"spec.containers: Required value",
		},
		"null container": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [null]}",
			"spec.containers[0].name: Required value; spec.containers[0].image: Required value",
		},
		"container name": {
			podWith("initContainers: [{name: a.b, image: i}]", ""),
			`spec.initContainers[0].name: Invalid value: "a.b"`,
		},
		"container twice": {
			podWith("initContainers: [{name: c, image: i}]", ""),
			`spec.containers[0].name: Duplicate value: "c"`,
		},
		"users and groups": {
			podWith("", "securityContext: {runAsUser: -1, runAsGroup: 2147483648}"),
			"spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive; spec.containers[0].securityContext.runAsGroup: Invalid value: 2147483648",
		},
		"image in spaces": {
			podWith("initContainers: [{name: i, image: \" i\"}]", ""),
			`spec.initContainers[0].image: Invalid value: " i": must not have leading or trailing whitespace`,
		},
		"pull policy": {
			podWith("", "imagePullPolicy: Maybe"),
			`spec.containers[0].imagePullPolicy: Unsupported value: "Maybe"`,
		},
		"message policy": {
			podWith("", "terminationMessagePolicy: Maybe"),
			`spec.containers[0].terminationMessagePolicy: Unsupported value: "Maybe"`,
		},
		"container policy": {
			podWith("", "restartPolicy: Maybe"),
			`spec.containers[0].restartPolicy: Unsupported value: "Maybe"`,
		},
		"empty container policy": {
			podWith("", `restartPolicy: ""`),
			"spec.containers[0].restartPolicy: Required value",
		},
		"init container probe": {
			podWith("initContainers: [{name: i, image: i, livenessProbe: {exec: {command: [a]}}}]", ""),
			"spec.initContainers[0].livenessProbe: Forbidden",
		},
		"rules without a policy": {
			podWith("", "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]"),
			"spec.containers[0].restartPolicy: Required value: must be set if restartPolicyRules is set",
		},
		"rule without an action": {
			podWith("", "restartPolicy: Never\nrestartPolicyRules: [{exitCodes: {}}]"),
			"spec.containers[0].restartPolicyRules[0].action: Required value; spec.containers[0].restartPolicyRules[0].exitCodes.operator: Required value",
		},
		"rule without exit codes": {
			podWith("", "restartPolicy: Never\nrestartPolicyRules: [{action: Restart}]"),
			"spec.containers[0].restartPolicyRules[0].exitCodes: Required value",
		},
		"rule of an unknown kind": {
			podWith("", "restartPolicy: Never\nrestartPolicyRules: [{action: A, exitCodes: {operator: B}}]"),
			`restartPolicyRules[0].exitCodes.operator: Unsupported value: "B"`,
		},
		"port out of range": {
			podWith("", "ports: [{containerPort: 0}]"),
			"spec.containers[0].ports[0].containerPort: Invalid value: 0",
		},
		"port name": {
			podWith("", "ports: [{containerPort: 1, name: A}]"),
			`spec.containers[0].ports[0].name: Invalid value: "A"`,
		},
		"port name twice": {
			podWith("", "ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]"),
			`spec.containers[0].ports[1].name: Duplicate value: "a"`,
		},
		"protocol": {
			podWith("", "ports: [{containerPort: 1, protocol: ICMP}]"),
			`spec.containers[0].ports[0].protocol: Unsupported value: "ICMP"`,
		},
		"host port": {
			podWith("", "ports: [{containerPort: 1, hostPort: -1}]"),
			"spec.containers[0].ports[0].hostPort: Invalid value: -1",
		},
		"host port of host": {
			podWith("hostNetwork: true", "ports: [{containerPort: 1, hostPort: 2}]"),
			"spec.containers[0].ports[0].hostPort: Invalid value: 2: must be equal to containerPort",
		},
		"host port twice": {
			podWith("", "ports: [{containerPort: 1, hostPort: 80}, {containerPort: 2, hostPort: 80}]"),
			"spec.containers[0].ports[1].hostPort: Duplicate value: 80",
		},
		"host port twice in an init container": {
			podWith("initContainers: [{name: s, image: i, ports: [{containerPort: 1, hostPort: 80}, {containerPort: 2, hostPort: 80}]}]", ""),
			"spec.initContainers[0].ports[1].hostPort: Duplicate value: 80",
		},
		"env without a name": {
			podWith("", "env: [{value: a}]"),
			"spec.containers[0].env[0].name: Required value",
		},
		"env name": {
			podWith("", "env: [{name: a=b}]"),
			`spec.containers[0].env[0].name: Invalid value: "a=b"`,
		},
		"env of two values": {
			podWith("", "env: [{name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"),
			"spec.containers[0].env[0].valueFrom: Forbidden",
		},
		"env of no source": {
			podWith("", "env: [{name: A, valueFrom: {}}]"),
			"spec.containers[0].env[0].valueFrom: Forbidden: must have exactly one source",
		},
		"env of two sources": {
			podWith("", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: a}, resourceFieldRef: {resource: b}}}]"),
			"spec.containers[0].env[0].valueFrom: Forbidden: must have exactly one source",
		},
		"env of a secret without a name": {
			podWith("", "env: [{name: A, valueFrom: {secretKeyRef: {key: a}}}]"),
			"spec.containers[0].env[0].valueFrom.secretKeyRef.name: Required value",
		},
		"env of a config map's bad key": {
			podWith("", "env: [{name: A, valueFrom: {configMapKeyRef: {name: a, key: a b}}}]"),
			`spec.containers[0].env[0].valueFrom.configMapKeyRef.key: Invalid value: "a b"`,
		},
		"env of no field": {
			podWith("", "env: [{name: A, valueFrom: {fieldRef: {}}}]"),
			"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Required value",
		},
		"env of no resource": {
			podWith("", "env: [{name: A, valueFrom: {resourceFieldRef: {}}}]"),
			"spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Required value",
		},
		"image that nobody can pull": {
			podWith("initContainers: [{name: i, image: \"A:\"}]", ""),
			`spec.initContainers[0].image: Invalid value: "A:": invalid reference format`,
		},
		"env from nowhere": {
			podWith("", "envFrom: [{prefix: a}]"),
			"spec.containers[0].envFrom[0]: Forbidden",
		},
		"negative limit": {
			podWith("", "resources: {limits: {cpu: -1}}"),
			`spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must not be negative`,
		},
		"negative request": {
			podWith("", "resources: {requests: {cpu: -1}}"),
			`spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must not be negative`,
		},
		"request above limit": {
			podWith("", "resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}"),
			`spec.containers[0].resources.requests[memory]: Invalid value: "2Gi": must not be more than the limit of 1Gi`,
		},
		"probe of nothing": {
			podWith("", "livenessProbe: {}"),
			"spec.containers[0].livenessProbe: Required value",
		},
		"probe of two things": {
			podWith("", "livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}"),
			"spec.containers[0].livenessProbe: Forbidden: must not have more than one action",
		},
		"probe without a command": {
			podWith("", "startupProbe: {exec: {}}"),
			"spec.containers[0].startupProbe.exec.command: Required value",
		},
		"probe of port 0": {
			podWith("", "startupProbe: {httpGet: {port: 0}}"),
			"spec.containers[0].startupProbe.httpGet.port: Invalid value: 0",
		},
		"probe of a bad port name": {
			podWith("", "startupProbe: {tcpSocket: {port: A}}"),
			`spec.containers[0].startupProbe.tcpSocket.port: Invalid value: "A"`,
		},
		"probe by a bad scheme": {
			podWith("", "startupProbe: {httpGet: {port: 1, scheme: FTP}}"),
			`spec.containers[0].startupProbe.httpGet.scheme: Unsupported value: "FTP"`,
		},
		"probe by a bad header": {
			podWith("", "startupProbe: {httpGet: {port: 1, httpHeaders: [{name: a b}]}}"),
			`spec.containers[0].startupProbe.httpGet.httpHeaders[0].name: Invalid value: "a b"`,
		},
		"probe by gRPC": {
			podWith("", "startupProbe: {grpc: {port: 70000}}"),
			"spec.containers[0].startupProbe.grpc.port: Invalid value: 70000",
		},
		"probe bounds": {
			podWith("", "livenessProbe: {exec: {command: [a]}, initialDelaySeconds: -1, timeoutSeconds: -1, periodSeconds: -1, failureThreshold: -1, successThreshold: 2, terminationGracePeriodSeconds: 0}"),
			"livenessProbe.initialDelaySeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive; spec.containers[0].livenessProbe.timeoutSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive; spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive; spec.containers[0].livenessProbe.failureThreshold: Invalid value: -1: must be between 1 and 2147483647, inclusive; spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be between 1 and 9223372036854775807, inclusive; spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be between 1 and 1, inclusive",
		},
		"readiness that kills": {
			podWith("", "readinessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 5}"),
			"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Forbidden",
		},
		"hook of nothing": {
			podWith("", "lifecycle: {preStop: {}}"),
			"spec.containers[0].lifecycle.preStop: Required value",
		},
		"hook that sleeps on": {
			podWith("", "lifecycle: {postStart: {sleep: {seconds: 31}}}"),
			"spec.containers[0].lifecycle.postStart.sleep.seconds: Invalid value: 31: must be between 0 and 30",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireBadField(t, c.text, c.want)
		})
	}
}
