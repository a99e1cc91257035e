package podsource

import (
	"strings"
	"testing"
)

// Each row is a field that the kubelet refuses too, with the path in the error.
func TestValidate_InvalidFields(t *testing.T) {
	t.Parallel()
	volume := func(source string) string { return "volumes: [{name: v, " + source + "}]" }
	for _, c := range []struct{ spec, container, want string }{
		{
			spec: "dnsPolicy: None",
			want: "spec.dnsConfig.nameservers: Required",
		},
		{
			spec: "dnsConfig: {nameservers: [a]}",
			want: "spec.dnsConfig.nameservers[0]: Invalid",
		},
		{
			spec: "dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}",
			want: "spec.dnsConfig.nameservers: Invalid",
		},
		{
			spec: "dnsConfig: {searches: [\"*\"]}",
			want: "spec.dnsConfig.searches[0]: Invalid",
		},
		{
			spec: "dnsConfig: {searches: [" + strings.Repeat("a,", 33) + "]}",
			want: "spec.dnsConfig.searches: Invalid",
		},
		{
			spec: "dnsConfig: {searches: [" + strings.Repeat(strings.Repeat("a.", 100)+"a,", 11) + "]}",
			want: "spec.dnsConfig.searches: Invalid",
		},
		{
			spec: "dnsConfig: {options: [{value: a}]}",
			want: "spec.dnsConfig.options[0]: Required",
		},
		{
			spec: "subdomain: A",
			want: "spec.subdomain: Invalid",
		},
		{
			spec: "serviceAccountName: A",
			want: "spec.serviceAccountName: Invalid",
		},
		{
			spec: "runtimeClassName: A",
			want: "spec.runtimeClassName: Invalid",
		},
		{
			spec: "hostnameOverride: A",
			want: "spec.hostnameOverride: Invalid",
		},
		{
			spec: "hostnameOverride: a\nhostNetwork: true",
			want: "spec.hostnameOverride: Forbidden",
		},
		{
			spec: "hostnameOverride: a\nsetHostnameAsFQDN: true",
			want: "spec.hostnameOverride: Forbidden",
		},
		{
			spec: "hostnameOverride: " + strings.Repeat("a", 65),
			want: "spec.hostnameOverride: Too long",
		},
		{
			spec: "hostAliases: [{ip: a}]",
			want: "spec.hostAliases[0].ip: Invalid",
		},
		{
			spec: "hostAliases: [{ip: 10.0.0.1, hostnames: [A]}]",
			want: "spec.hostAliases[0].hostnames[0]: Invalid",
		},
		{
			spec: "os: {}",
			want: "spec.os.name: Required",
		},
		{
			spec: "os: {name: plan9}",
			want: "spec.os: Unsupported",
		},
		{
			spec: "tolerations: [{key: \"a b\", operator: Exists}]",
			want: "spec.tolerations[0].key: Invalid",
		},
		{
			spec: "tolerations: [{value: a}]",
			want: "spec.tolerations[0].operator: Invalid",
		},
		{
			spec: "tolerations: [{key: a, operator: Exists, value: a}]",
			want: "spec.tolerations[0].operator: Invalid",
		},
		{
			spec: "tolerations: [{key: a, value: \"a b\"}]",
			want: "spec.tolerations[0].operator: Invalid",
		},
		{
			spec: "tolerations: [{key: a, operator: Lt, value: \"5\"}]",
			want: "spec.tolerations[0].operator: Unsupported",
		},
		{
			spec: "tolerations: [{key: a, operator: Exists, effect: a}]",
			want: "spec.tolerations[0].effect: Unsupported",
		},
		{
			spec: "tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 1}]",
			want: "spec.tolerations[0].effect: Invalid",
		},
		{
			spec: "securityContext: {supplementalGroupsPolicy: a}",
			want: "spec.securityContext.supplementalGroupsPolicy: Unsupported",
		},
		{
			spec: "securityContext: {fsGroupChangePolicy: \"\"}",
			want: "spec.securityContext.fsGroupChangePolicy: Unsupported",
		},
		{
			spec: "securityContext: {seLinuxChangePolicy: MountOption}",
			want: "spec.securityContext.seLinuxChangePolicy: Unsupported",
		},
		{
			spec: "securityContext: {sysctls: [{value: a}]}",
			want: "spec.securityContext.sysctls[0].name: Required",
		},
		{
			spec: "securityContext: {sysctls: [{name: A}]}",
			want: "spec.securityContext.sysctls[0].name: Invalid",
		},
		{
			spec: "securityContext: {sysctls: [{name: a.b}, {name: a.b}]}",
			want: "spec.securityContext.sysctls[1].name: Duplicate",
		},
		{
			spec: "hostNetwork: true\nsecurityContext: {sysctls: [{name: net.core.somaxconn}]}",
			want: "spec.securityContext.sysctls[0].name: Invalid",
		},
		{
			spec: "hostIPC: true\nsecurityContext: {sysctls: [{name: kernel/shmmax}]}",
			want: "spec.securityContext.sysctls[0].name: Invalid",
		},
		{
			spec: "hostPID: true\nshareProcessNamespace: true",
			want: "spec.securityContext.shareProcessNamespace: Invalid",
		},
		{
			spec: "hostUsers: false\nhostNetwork: true",
			want: "spec.hostNetwork: Forbidden",
		},
		{
			spec: "hostUsers: false\nhostPID: true",
			want: "spec.hostPID: Forbidden",
		},
		{
			spec: "hostUsers: false\nhostIPC: true",
			want: "spec.hostIPC: Forbidden",
		},
		{
			spec: "securityContext: {seccompProfile: {}}",
			want: "spec.securityContext.seccompProfile.type: Required",
		},
		{
			spec: "securityContext: {seccompProfile: {type: a}}",
			want: "spec.securityContext.seccompProfile.type: Unsupported",
		},
		{
			spec: "securityContext: {seccompProfile: {type: Localhost}}",
			want: "spec.securityContext.seccompProfile.localhostProfile: Required",
		},
		{
			spec: "securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../a}}",
			want: "spec.securityContext.seccompProfile.localhostProfile: Invalid",
		},
		{
			spec: "securityContext: {seccompProfile: {type: Unconfined, localhostProfile: a}}",
			want: "spec.securityContext.seccompProfile.localhostProfile: Invalid",
		},
		{
			spec: "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: \"\"}}",
			want: "spec.securityContext.appArmorProfile.localhostProfile: Required",
		},
		{
			spec: "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: \" a\"}}",
			want: "spec.securityContext.appArmorProfile.localhostProfile: Invalid",
		},
		{
			spec: "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: " + strings.Repeat("a", 4096) + "}}",
			want: "spec.securityContext.appArmorProfile.localhostProfile: Too long",
		},
		{
			spec: "securityContext: {appArmorProfile: {type: Unconfined, localhostProfile: a}}",
			want: "spec.securityContext.appArmorProfile.localhostProfile: Invalid",
		},
		{
			container: "securityContext: {procMount: a}",
			want:      "spec.containers[0].securityContext.procMount: Unsupported",
		},
		{
			container: "securityContext: {procMount: Unmasked}",
			want:      "spec.containers[0].securityContext.procMount: Invalid",
		},
		{
			container: "securityContext: {allowPrivilegeEscalation: false, privileged: true}",
			want:      "spec.containers[0].securityContext: Invalid",
		},
		{
			container: "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}",
			want:      "spec.containers[0].securityContext: Invalid",
		},
		{
			spec: volume("hostPath: {path: /a, type: a}"),
			want: "spec.volumes[0].hostPath.type: Unsupported",
		},
		{
			spec: volume("secret: {}"),
			want: "spec.volumes[0].secret.secretName: Required",
		},
		{
			spec: volume("secret: {secretName: a, defaultMode: 512}"),
			want: "spec.volumes[0].secret.defaultMode: Invalid",
		},
		{
			spec: volume("configMap: {}"),
			want: "spec.volumes[0].configMap.name: Required",
		},
		{
			spec: volume("configMap: {name: a, items: [{path: a}]}"),
			want: "spec.volumes[0].configMap.items[0].key: Required",
		},
		{
			spec: volume("configMap: {name: a, items: [{key: a, path: a, mode: -1}]}"),
			want: "spec.volumes[0].configMap.items[0].mode: Invalid",
		},
		{
			spec: volume("configMap: {name: a, items: [{key: a, path: ..a}]}"),
			want: "spec.volumes[0].configMap.items[0].path: Invalid",
		},
		{
			spec: volume("downwardAPI: {items: [{path: a}]}"),
			want: "spec.volumes[0].downwardAPI.items[0]: Required",
		},
		{
			spec: volume("downwardAPI: {items: [{path: a, fieldRef: {fieldPath: spec.nodeName}}]}"),
			want: "spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath: Unsupported",
		},
		{
			spec: volume("downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}"),
			want: "spec.volumes[0].downwardAPI.items[0].resourceFieldRef.containerName: Required",
		},
		{
			spec: volume("downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}"),
			want: "spec.volumes[0].downwardAPI.items[0]: Invalid",
		},
		{
			spec: volume("image: {}"),
			want: "spec.volumes[0].image.reference: Required",
		},
		{
			spec: volume("projected: {sources: [{secret: {name: a}, configMap: {name: b}}]}"),
			want: "spec.volumes[0].projected.sources[0]: Forbidden",
		},
		{
			spec: volume("projected: {sources: [{serviceAccountToken: {path: a}}]}"),
			want: "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden",
		},
		{
			spec: "serviceAccountName: a\n" + volume("projected: {sources: [{serviceAccountToken: {path: a, expirationSeconds: 1}}]}"),
			want: "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid",
		},
		{
			spec: volume("projected: {sources: [{secret: {name: a, items: [{key: a, path: p}]}}, {configMap: {name: a, items: [{key: a, path: p}]}}]}"),
			want: "spec.volumes[0].projected: Invalid",
		},
		{
			spec: volume("projected: {sources: [{podCertificate: {keyPath: p, certificateChainPath: p}}]}"),
			want: "spec.volumes[0].projected: Invalid",
		},
		{
			spec: volume("projected: {sources: [{clusterTrustBundle: {path: p}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}"),
			want: "spec.volumes[0].projected: Invalid",
		},
		{
			spec:      volume("emptyDir: {}"),
			container: "volumeMounts: [{name: v, mountPath: /a, mountPropagation: a}]",
			want:      "spec.containers[0].volumeMounts[0].mountPropagation: Unsupported",
		},
		{
			spec:      volume("emptyDir: {}"),
			container: "volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]",
			want:      "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden",
		},
		{
			spec:      volume("emptyDir: {}"),
			container: "volumeMounts: [{name: v, mountPath: /a, recursiveReadOnly: Enabled}]",
			want:      "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden",
		},
		{
			spec:      volume("emptyDir: {}"),
			container: "volumeMounts: [{name: v, mountPath: /a, readOnly: true, mountPropagation: HostToContainer, recursiveReadOnly: Enabled}]",
			want:      "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden",
		},
		{
			container: "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]",
			want:      "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported",
		},
		{
			container: "env: [{name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: metadata.name}}}]",
			want:      "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid",
		},
		{
			container: "env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a b']\"}}}]",
			want:      "spec.containers[0].env[0].valueFrom.fieldRef: Invalid",
		},
		{
			container: "env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['a b']\"}}}]",
			want:      "spec.containers[0].env[0].valueFrom.fieldRef: Invalid",
		},
		{
			container: "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]",
			want:      "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported",
		},
		{
			container: "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 5m}}}]",
			want:      "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Unsupported",
		},
		{
			container: "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 3}}}]",
			want:      "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Unsupported",
		},
		{
			container: "envFrom: [{prefix: \"=\", configMapRef: {name: a}}]",
			want:      "spec.containers[0].envFrom[0].prefix: Invalid",
		},
		{
			container: "envFrom: [{secretRef: {name: A.b-}}]",
			want:      "spec.containers[0].envFrom[0].secretRef.name: Invalid",
		},
		{
			container: "lifecycle: {stopSignal: SIGTERM}",
			want:      "spec.containers[0].lifecycle.stopSignal: Forbidden",
		},
		{
			spec:      "os: {name: linux}",
			container: "lifecycle: {stopSignal: SIGRTMIN+16}",
			want:      "spec.containers[0].lifecycle.stopSignal: Unsupported",
		},
		{
			spec:      "os: {name: windows}",
			container: "lifecycle: {stopSignal: SIGHUP}",
			want:      "spec.containers[0].lifecycle.stopSignal: Unsupported",
		},
		{
			container: "resources: {limits: {gpu: 1}}",
			want:      "spec.containers[0].resources.limits[gpu]: Invalid",
		},
		{
			container: "resources: {limits: {\"a b\": 1}}",
			want:      "spec.containers[0].resources.limits[a b]: Invalid",
		},
		{
			container: "resources: {limits: {example.com/gpu: 500m}}",
			want:      "spec.containers[0].resources.limits[example.com/gpu]: Invalid",
		},
		{
			container: "resources: {requests: {example.com/gpu: 1}}",
			want:      "spec.containers[0].resources.limits: Required",
		},
		{
			container: "resources: {limits: {example.com/gpu: 2}, requests: {example.com/gpu: 1}}",
			want:      "spec.containers[0].resources.requests[example.com/gpu]: Invalid",
		},
		{
			container: "resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}",
			want:      "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid",
		},
		{
			container: "resources: {limits: {hugepages-2Mi: 2Mi}}",
			want:      "spec.containers[0].resources: Forbidden",
		},
		{
			container: "resizePolicy: [{resourceName: gpu, restartPolicy: NotRequired}]",
			want:      "spec.containers[0].resizePolicy: Unsupported",
		},
		{
			container: "resizePolicy: [{restartPolicy: NotRequired}]",
			want:      "spec.containers[0].resizePolicy: Required",
		},
		{
			container: "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]",
			want:      "spec.containers[0].resizePolicy[1]: Duplicate",
		},
		{
			spec:      "restartPolicy: Never",
			container: "resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]",
			want:      "spec.containers[0].resizePolicy: Invalid",
		},
		{
			spec: "resources: {limits: {ephemeral-storage: 1}}",
			want: "spec.resources.limits[ephemeral-storage]: Invalid",
		},
		{
			spec:      "resources: {requests: {cpu: 1}}",
			container: "resources: {requests: {cpu: 2}}",
			want:      "spec.resources.requests[cpu]: Invalid",
		},
		{
			spec:      "resources: {limits: {cpu: 1, hugepages-2Mi: 2Mi}}",
			container: "resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}}",
			want:      "spec.resources.limits[hugepages-2Mi]: Invalid",
		},
		{
			spec:      "resources: {limits: {cpu: 1}}",
			container: "resources: {limits: {cpu: 2}, requests: {cpu: 1}}",
			want:      "spec.resources.containers[0][cpu].limits: Invalid",
		},
		{
			spec: "overhead: {cpu: -1}",
			want: "spec.overhead.limits[cpu]: Invalid",
		},
	} {
		t.Run(c.want+" "+c.spec+c.container, func(t *testing.T) {
			t.Parallel()
			requireBadField(t, podWith(c.spec, c.container), c.want)
		})
	}
}
