package podsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func decodeOne(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	manifests, problems := decodeFile("f.yaml", []byte(text), origin{source: podspec.SourceFile, node: "node1"})
	require.Empty(t, problems)
	require.Len(t, manifests, 1)
	return manifests[0].pod
}

func TestDefaults_Pod(t *testing.T) {
	t.Parallel()
	pod := decodeOne(t, podWith("", "ports: [{containerPort: 80}]"))
	require.Equal(t, "default", pod.Namespace)
	require.Equal(t, corev1.PodSpec{
		RestartPolicy:                 "Always",
		DNSPolicy:                     "ClusterFirst",
		SchedulerName:                 "default-scheduler",
		TerminationGracePeriodSeconds: new(int64(30)),
		EnableServiceLinks:            new(true),
		SecurityContext:               &corev1.PodSecurityContext{},
		NodeName:                      "node1",
		Tolerations:                   []corev1.Toleration{{Operator: "Exists", Effect: "NoExecute"}},
		Containers: []corev1.Container{{
			Name: "c", Image: "i:1", ImagePullPolicy: "IfNotPresent",
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
			Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}},
		}},
	}, pod.Spec)
}

func TestDefaults_KeepValuesOfTheManifest(t *testing.T) {
	t.Parallel()
	pod := decodeOne(t, podWith("restartPolicy: Never\nterminationGracePeriodSeconds: 0\nenableServiceLinks: false\n"+
		"tolerations: [{operator: Exists, effect: NoExecute}]\nsecurityContext: {runAsUser: 5}",
		"imagePullPolicy: Never\nlivenessProbe: {exec: {command: [a]}, periodSeconds: 2}"))
	require.EqualValues(t, "Never", pod.Spec.RestartPolicy)
	require.Zero(t, *pod.Spec.TerminationGracePeriodSeconds)
	require.False(t, *pod.Spec.EnableServiceLinks)
	require.Len(t, pod.Spec.Tolerations, 1)
	require.EqualValues(t, 5, *pod.Spec.SecurityContext.RunAsUser)
	require.EqualValues(t, "Never", pod.Spec.Containers[0].ImagePullPolicy)
	require.EqualValues(t, 2, pod.Spec.Containers[0].LivenessProbe.PeriodSeconds)
}

func TestDefaults_PullPolicyFollowsTheTag(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	for image, want := range map[string]corev1.PullPolicy{
		"nginx":                      "Always",
		"nginx:latest":               "Always",
		"nginx:1.29":                 "IfNotPresent",
		"registry:5000/nginx":        "Always",
		"registry:5000/nginx:latest": "Always",
		"registry:5000/nginx:1":      "IfNotPresent",
		"nginx@" + digest:            "IfNotPresent",
		"nginx:latest@" + digest:     "Always",
		"nginx:latest@sha256:0123":   "IfNotPresent", // not a valid reference
	} {
		require.Equal(t, want, pullPolicy(image), image)
	}
}

func TestDefaults_ProbesAndHooks(t *testing.T) {
	t.Parallel()
	c := decodeOne(t, podWith("", "livenessProbe: {httpGet: {port: 80}}\nreadinessProbe: {grpc: {port: 5}}\n"+
		"lifecycle: {preStop: {httpGet: {port: 80, path: /bye, scheme: HTTPS}}}")).Spec.Containers[0]
	require.Equal(t, corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: c.LivenessProbe.HTTPGet.Port, Scheme: "HTTP"}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
	}, *c.LivenessProbe)
	require.Empty(t, *c.ReadinessProbe.GRPC.Service)
	require.EqualValues(t, "HTTPS", c.Lifecycle.PreStop.HTTPGet.Scheme)
	require.Equal(t, "/bye", c.Lifecycle.PreStop.HTTPGet.Path)
}

func TestDefaults_RequestsFollowLimits(t *testing.T) {
	t.Parallel()
	pod := decodeOne(t, podWith("resources: {limits: {cpu: 4}}", "resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 1Gi}}"))
	requests := pod.Spec.Containers[0].Resources.Requests
	require.Zero(t, requests.Cpu().Cmp(resource.MustParse("1")))
	require.Zero(t, requests.Memory().Cmp(resource.MustParse("1Gi")))
	require.Zero(t, pod.Spec.Resources.Requests.Cpu().Cmp(resource.MustParse("1")), "the request must be the sum of the containers' requests")
	require.Zero(t, pod.Spec.Resources.Requests.Memory().Cmp(resource.MustParse("1Gi")))

	pod = decodeOne(t, podWith("resources: {limits: {cpu: 4}}", ""))
	require.Zero(t, pod.Spec.Resources.Requests.Cpu().Cmp(resource.MustParse("4")), "the request must be the limit")
	pod = decodeOne(t, podWith("resources: {requests: {cpu: 4}}", "resources: {limits: {cpu: 1, hugepages-2Mi: 4Mi}}"))
	require.Equal(t, "4Mi", pod.Spec.Resources.Limits.Name("hugepages-2Mi", resource.BinarySI).String())
	pod = decodeOne(t, podWith("resources: {requests: {cpu: 4}}", ""))
	require.Empty(t, pod.Spec.Resources.Limits)
}

// Fields that the API server and the kubelet convert.
func TestDefaults_ConvertedFields(t *testing.T) {
	t.Parallel()
	pod := decodeOne(t, podWith("terminationGracePeriodSeconds: -5\nserviceAccount: a", "")+"status: {podIPs: [{ip: 10.0.0.1}], message: m, phase: Failed}\n")
	require.EqualValues(t, 1, *pod.Spec.TerminationGracePeriodSeconds)
	require.Equal(t, "a", pod.Spec.ServiceAccountName)
	require.Equal(t, corev1.PodStatus{
		Phase: corev1.PodPending, Message: "m", PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
	}, pod.Status)
	pod = decodeOne(t, podWith("", "")+"status: {podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.1}]}\n")
	require.Equal(t, []corev1.PodIP{{IP: "10.0.0.2"}}, pod.Status.PodIPs)
	pod = decodeOne(t, podWith("serviceAccountName: a\nserviceAccount: b", ""))
	require.Equal(t, "a", pod.Spec.DeprecatedServiceAccount)
}

func TestIdentity_TolerationsOfNoExecuteTaints(t *testing.T) {
	t.Parallel()
	always := corev1.Toleration{Operator: "Exists", Effect: "NoExecute"}
	pod := decodeOne(t, podWith("tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 5}, {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]", ""))
	require.Equal(t, always, pod.Spec.Tolerations[0])
	require.Len(t, pod.Spec.Tolerations, 2)
	manifests, problems := decodeFile("a", []byte(podWith("", "")), origin{source: podspec.SourceHTTP, node: "n"})
	require.Empty(t, problems)
	require.Empty(t, manifests[0].pod.Spec.Tolerations, "a pod from a URL must not get the tolerations of a file")
}

func TestDefaults_HostPortsOnTheHostNetwork(t *testing.T) {
	t.Parallel()
	pod := decodeOne(t, podWith("hostNetwork: true", "ports: [{containerPort: 80}]"))
	require.EqualValues(t, 80, pod.Spec.Containers[0].Ports[0].HostPort)
}

func TestDefaults_VolumesAndReferences(t *testing.T) {
	t.Parallel()
	pod := decodeOne(t, podWith(`serviceAccountName: a
volumes:
- name: empty
- {name: host, hostPath: {path: /a}}
- {name: secret, secret: {secretName: a}}
- {name: config, configMap: {name: a, defaultMode: 256}}
- {name: down, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}
- name: all
  projected:
    sources:
    - serviceAccountToken: {path: token}
    - downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}`,
		"env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"))
	v := pod.Spec.Volumes
	require.NotNil(t, v[0].EmptyDir)
	require.Equal(t, corev1.HostPathUnset, *v[1].HostPath.Type)
	require.EqualValues(t, 0o644, *v[2].Secret.DefaultMode)
	require.EqualValues(t, 0o400, *v[3].ConfigMap.DefaultMode)
	require.EqualValues(t, 0o644, *v[4].DownwardAPI.DefaultMode)
	require.Equal(t, "v1", v[4].DownwardAPI.Items[0].FieldRef.APIVersion)
	require.EqualValues(t, 0o644, *v[5].Projected.DefaultMode)
	require.EqualValues(t, 3600, *v[5].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds)
	require.Equal(t, "v1", v[5].Projected.Sources[1].DownwardAPI.Items[0].FieldRef.APIVersion)
	require.Equal(t, "v1", pod.Spec.Containers[0].Env[0].ValueFrom.FieldRef.APIVersion)
}

// A default that the module changes later must not restart every pod.
func TestIdentity_HashIgnoresDefaults(t *testing.T) {
	t.Parallel()
	pod := decodeOne(t, podWith("", ""))
	explicit := decodeOne(t, podWith("dnsPolicy: ClusterFirst", ""))
	require.NotEqual(t, pod.UID, explicit.UID)
	require.EqualValues(t, "cfdece0d3d8b35c113771964d1e52d00", pod.UID, "a new version of this module must not change the UID, which would restart every pod")
}
