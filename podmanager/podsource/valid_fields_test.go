package podsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestValidate_ValidFields(t *testing.T) {
	t.Parallel()
	const down = "volumes: [{name: v, downwardAPI: {items: [{path: a, "
	for name, c := range map[string]struct{ spec, container string }{
		"DNS": {
			spec: "dnsConfig: {nameservers: [010.0.0.1, \"fd00::1\"], searches: [., a_b.c., d], options: [{name: ndots}]}",
		},
		"host name": {
			spec: "hostnameOverride: a",
		},
		"aliases": {
			spec: "hostAliases: [{ip: 10.0.0.1, hostnames: [a.b]}]",
		},
		"tolerations": {
			spec: "tolerations: [{operator: Exists}, {key: a/b, value: c, effect: NoSchedule}]",
		},
		"sysctls": {
			spec: "securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: \"1\"}, {name: net/ipv4/tcp_syncookies, value: \"1\"}]}",
		},
		"seccomp": {
			spec: "securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/b}}",
		},
		"AppArmor": {
			spec: "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: a}}",
		},
		"unmasked proc": {
			spec:      "hostUsers: false",
			container: "securityContext: {procMount: Unmasked}",
		},
		"privilege": {
			container: "securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [SYS_ADMIN]}}",
		},
		"resources of the pod": {
			spec:      "resources: {limits: {cpu: 4}, requests: {cpu: 2}}",
			container: "resources: {limits: {cpu: 4}, requests: {cpu: 2}}",
		},
		"resources": {
			container: "resources: {limits: {cpu: 1, hugepages-2Mi: 4Mi, kubernetes.io/a: 1500m, example.com/gpu: 2}}",
		},
		"resizes": {
			container: "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: RestartContainer}]",
		},
		"annotation in a file": {
			spec: down + "fieldRef: {fieldPath: \"metadata.annotations['A/b']\"}}]}}]",
		},
		"resource in a file": {
			spec: down + "resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}]}}]",
		},
		"token": {
			spec: "serviceAccountName: a\nvolumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a, expirationSeconds: 600}}]}}]",
		},
		"image as a volume": {
			spec: "volumes: [{name: v, image: {reference: a, pullPolicy: Always}}]",
		},
		"propagation": {
			spec:      "volumes: [{name: v}]",
			container: "securityContext: {privileged: true}\nvolumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]",
		},
		"recursion": {
			spec:      "volumes: [{name: v}]",
			container: "volumeMounts: [{name: v, mountPath: /b, readOnly: true, mountPropagation: None, recursiveReadOnly: IfPossible}]",
		},
		"real-time signal": {
			spec:      "os: {name: linux}",
			container: "lifecycle: {stopSignal: SIGRTMAX-14}",
		},
		"signal": {
			spec:      "os: {name: linux}",
			container: "lifecycle: {stopSignal: SIGUSR1}",
		},
		"names with a dash": {
			container: "envFrom: [{prefix: \"a-\", secretRef: {name: a-}}]",
		},
		"variables": {
			container: "env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.host}}}, {name: B, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decodeOne(t, podWith(c.spec, c.container))
		})
	}
}

func TestValidate_ResourceNames(t *testing.T) {
	t.Parallel()
	type has struct{ containers, pods bool }
	for name, want := range map[corev1.ResourceName]has{
		"cpu":                      {true, true},
		"memory":                   {true, true},
		"ephemeral-storage":        {true, false},
		"hugepages-2Mi":            {true, true},
		"storage":                  {false, false},
		"pods":                     {false, false},
		"gpu":                      {false, false},
		"a b":                      {false, false},
		"":                         {false, false},
		"example.com/gpu":          {true, false},
		"kubernetes.io/a":          {true, false},
		"a.kubernetes.io/a":        {true, false},
		"requests.example.com/gpu": {false, false},
		corev1.ResourceName(strings.Repeat("a", 250) + "/b"): {false, false},
	} {
		require.Equal(t, want, has{isContainerResource(name), isPodResource(name)}, name)
	}
}

// A pod with one of these fields is rejected at admission, so their content is not
// validated.
func TestValidate_FieldsThatAreNotChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, container string }{
		"volume of another kind": {
			spec: "volumes: [{name: v, iscsi: {lun: -1}}]",
		},
		"claim of a volume": {
			spec: "volumes: [{name: v, persistentVolumeClaim: {}}]",
		},
		"volume of a driver": {
			spec: "volumes: [{name: v, csi: {}}]",
		},
		"bundle of certificates": {
			spec: "volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: a}}]}}]",
		},
		"certificate": {
			spec: "volumes: [{name: v, projected: {sources: [{podCertificate: {keyPath: a}}]}}]",
		},
		"claim of a resource": {
			spec: "resourceClaims: [{name: A}]",
		},
		"use of a claim": {
			container: "resources: {claims: [{name: A}]}",
		},
		"block device": {
			spec:      "volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]",
			container: "volumeDevices: [{name: v, devicePath: ../a}]",
		},
		"variable of a file": {
			container: "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: \"\", path: \"\", key: \"\"}}}]",
		},
		"Windows": {
			spec:      "os: {name: windows}\nsecurityContext: {windowsOptions: {runAsUserName: \"\"}}",
			container: "securityContext: {windowsOptions: {hostProcess: true}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decodeOne(t, podWith(c.spec, c.container))
		})
	}
}

// One error contains all problems of a pod, in the order of the validation.
func TestValidate_SeveralFields(t *testing.T) {
	t.Parallel()
	got := decodeErr(t, "f.yaml", podWith(`dnsConfig: {nameservers: [a]}
subdomain: A
tolerations: [{effect: a}]
hostUsers: false
hostPID: true
securityContext: {sysctls: [{name: A}], seccompProfile: {}}
resources: {limits: {gpu: 1}}
volumes: [{name: v, secret: {defaultMode: -1}}]`, `ports: [{containerPort: 0}]
env: [{name: A, valueFrom: {fieldRef: {}}}]
securityContext: {procMount: a}
resources: {limits: {gpu: 1}}
resizePolicy: [{resourceName: gpu, restartPolicy: NotRequired}]
volumeMounts: [{name: v, mountPath: /a, mountPropagation: a}]
lifecycle: {stopSignal: a}`))
	last := 0
	for _, field := range []string{
		"spec.dnsConfig.nameservers[0]:",
		"spec.subdomain:",
		"spec.tolerations[0].operator:",
		"spec.tolerations[0].effect:",
		"spec.securityContext.sysctls[0].name:",
		"spec.securityContext.seccompProfile.type:",
		"spec.hostPID:",
		"spec.resources.limits[gpu]:",
		"spec.volumes[0].secret.secretName:",
		"spec.volumes[0].secret.defaultMode:",
		"spec.containers[0].ports[0].containerPort:",
		"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath:",
		"spec.containers[0].securityContext.procMount:",
		"spec.containers[0].resources.limits[gpu]:",
		"spec.containers[0].resizePolicy:",
		"spec.containers[0].volumeMounts[0].mountPropagation:",
		"spec.containers[0].lifecycle.stopSignal:",
	} {
		at := strings.Index(got, field)
		require.Greater(t, at, last, "%s in %s", field, got)
		last = at
	}
}
