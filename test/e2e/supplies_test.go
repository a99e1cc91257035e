//go:build e2e

package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podText returns a pod of one busybox container that runs a script and then sleeps. spec and
// container are additional fields in JSON.
func podText(name, spec, container, script string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}, annotations: {note: "an annotation"}}
spec: {terminationGracePeriodSeconds: 2, %s containers: [{
  name: main, image: kubeparts.test/busybox:1, %s
  command: [sh, -c, %q]}]}
`, name, name, spec, container, script+"\necho the end\nexec sleep 3600")
}

// said waits for the end of the pod's script and returns its output.
func (n *node) said(pod *corev1.Pod) string {
	n.t.Helper()
	var text string
	waitFor(n.t, startTimeout, "the script to end", func() (string, bool) {
		data, err := os.ReadFile(n.logFile(pod, "main", 0))
		var b strings.Builder
		for line := range strings.Lines(string(data)) {
			if parts := strings.SplitN(line, " ", 4); len(parts) == 4 {
				b.WriteString(parts[3])
			}
		}
		text = b.String()
		return fmt.Sprint(text, err), strings.Contains(text, "the end\n")
	})
	return text
}

// requireSays fails the test for each line that the output lacks.
func requireSays(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		require.Contains(t, "\n"+text, "\n"+line+"\n")
	}
}

// requireNothingLeft waits until the agent's directory contains no file and no mount of any
// pod.
func (n *node) requireNothingLeft() {
	n.t.Helper()
	waitFor(n.t, 20*time.Second, "nothing to be left below "+n.root, func() (string, bool) {
		var left []string
		for _, dir := range []string{"pods", "logs/pods"} {
			entries, _ := os.ReadDir(filepath.Join(n.root, dir)) // the directory may not exist
			for _, e := range entries {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
		left = append(left, mountsBelow(n.root)...)
		return strings.Join(left, "\n"), len(left) == 0
	})
}

// mountsBelow returns the mount points below a directory, the last mounted first.
func mountsBelow(dir string) (targets []string) {
	data, _ := os.ReadFile("/proc/self/mountinfo") // /proc is always mounted
	for line := range strings.Lines(string(data)) {
		if target := strings.Fields(line)[4]; strings.HasPrefix(target, dir+"/") {
			targets = append([]string{target}, targets...)
		}
	}
	return targets
}

// unmountAll unmounts the volumes of pods that still run after their agent has stopped.
func (n *node) unmountAll() {
	for _, target := range mountsBelow(n.root) {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			n.t.Errorf("unmount %s: %v", target, err)
		}
	}
}

const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, file.txt: "from the map"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: hunter2, token: t0k3n}
`

func TestEnvironment_ResolvesEverySource(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("objects.yaml", objects)
	n.write("env.yaml", podText("env", "", `
  resources: {limits: {memory: 64Mi, cpu: 500m}},
  envFrom: [{prefix: MAP_, configMapRef: {name: settings}}, {secretRef: {name: keys}}, {configMapRef: {name: none, optional: true}}],
  env: [{name: PLAIN, value: "a b"}, {name: EXPANDED, value: "$(PLAIN) $(password) $$(PLAIN)"},
    {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}},
    {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}},
    {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}},
    {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}},
    {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
    {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
    {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}},
    {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}],`, "env"))
	n.start()
	pod := n.waitRunning("env")
	requireSays(t, n.said(pod),
		"MAP_color=blue", "password=hunter2", "token=t0k3n", "PLAIN=a b", "EXPANDED=a b hunter2 $(PLAIN)", "COLOR=blue", "PASSWORD=hunter2",
		"POD="+pod.Name, "LABEL=env", "NODE="+n.hostname, "IP="+pod.Status.PodIP, "MEMORY=67108864", "CPU=500")
}

func TestEnvironment_PassesManyVariablesAndSpecialCharacters(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var env strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&env, "{name: V%d, value: 'value of %d'},", i, i)
	}
	const special = "tab\\t 'single' \\\"double\\\" `back` $HOME \\\\ * ? [x] {y} ; & | < > # ! ~ ünïcödé 漢字 \\n end"
	n.write("many.yaml", fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: many}
spec: {terminationGracePeriodSeconds: 2, containers: [{
  name: main, image: kubeparts.test/busybox:1, env: [%s],
  command: [sh, -c, "env | grep -c '^V[0-9]*=value of'; printf '%%s' \"$1\" | base64 | tr -d '\\n'; echo; echo the end; exec sleep 3600", sh],
  args: ["%s"]}]}
`, env.String(), special))
	n.start()
	want := strings.NewReplacer(`\t`, "\t", `\"`, `"`, `\\`, `\`, `\n`, "\n").Replace(special)
	requireSays(t, n.said(n.waitRunning("many")), "1000", base64.StdEncoding.EncodeToString([]byte(want)))
}

func TestVolumes_EveryKindIsMountedAndRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	host := filepath.Join(filepath.Dir(n.root), "host")
	require.NoError(t, os.MkdirAll(host, 0o755))
	require.NoError(t, os.WriteFile(host+"/greeting", []byte("from the host\n"), 0o644))
	n.write("objects.yaml", objects)
	n.write("volumes.yaml", podText("volumes", `securityContext: {fsGroup: 4321}, volumes: [
    {name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}, {name: host, hostPath: {path: `+host+`, type: Directory}},
    {name: map, configMap: {name: settings, items: [{key: file.txt, path: sub/f}]}}, {name: secret, secret: {secretName: keys, defaultMode: 0400}},
    {name: down, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: memory, resourceFieldRef: {containerName: main, resource: limits.memory}}]}},
    {name: all, projected: {sources: [{configMap: {name: settings}}, {secret: {name: keys}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}],`, `
  resources: {limits: {memory: 64Mi}},
  volumeMounts: [{name: disk, mountPath: /disk}, {name: disk, mountPath: /part, subPath: a/b}, {name: memory, mountPath: /memory}, {name: host, mountPath: /host, readOnly: true},
    {name: map, mountPath: /map}, {name: secret, mountPath: /secret}, {name: down, mountPath: /down}, {name: all, mountPath: /all}],`,
		`echo written > /part/file; echo disk $(cat /disk/a/b/file)
grep -c ' /memory tmpfs' /proc/mounts | sed 's/^/memory /'
echo host $(cat /host/greeting); touch /host/x 2>/dev/null || echo host is read-only
echo map $(cat /map/sub/f); echo secret $(cat /secret/password)
stat -L -c 'secret %a %g' /secret/password; grep -c ' /secret tmpfs' /proc/mounts | sed 's/^/secret tmpfs /'
echo down $(cat /down/labels) $(cat /down/memory); echo all $(cat /all/color) $(cat /all/token) $(cat /all/name)
stat -c 'disk group %g' /disk`))
	n.start()
	pod := n.waitRunning("volumes")
	requireSays(t, n.said(pod), "disk written", "memory 1", "host from the host", "host is read-only", "map from the map", "secret hunter2",
		"secret 440 4321", "secret tmpfs 1", `down app="volumes" 67108864`, "all blue t0k3n "+pod.Name, "disk group 4321")

	// An update must be visible completely, not in parts.
	pid := bed.pid(t, bed.instances(t, podLabels(pod))[0].ID)
	n.write("objects.yaml", strings.NewReplacer("from the map", "another text", "hunter2", "swordfish").Replace(objects))
	waitFor(t, 10*time.Second, "the files to have the new contents", func() (string, bool) {
		text, err1 := os.ReadFile(fmt.Sprintf("/proc/%d/root/map/sub/f", pid))
		secret, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/root/secret/password", pid))
		return fmt.Sprint(string(text), string(secret), err1, err2), string(text) == "another text" && string(secret) == "swordfish"
	})

	was := bed.traces(t, pod)
	n.remove("volumes.yaml")
	bed.requireGone(t, was)
	n.requireNothingLeft()
	require.FileExists(t, host+"/greeting", "the file must exist on the host")
}

func TestImageVolume(t *testing.T) {
	needs(t, imageVolumes)
	t.Parallel()
	n := newNode(t)
	n.write("image.yaml", podText("image", `volumes: [{name: image, image: {reference: "kubeparts.test/testserver:1", pullPolicy: IfNotPresent}}],`,
		"volumeMounts: [{name: image, mountPath: /image}],", "test -x /image/testserver && echo image is there"))
	n.start()
	pod := n.waitRunning("image")
	requireSays(t, n.said(pod), "image is there")
	was := bed.traces(t, pod)
	n.remove("image.yaml")
	bed.requireGone(t, was)
	n.requireNothingLeft()
}

// TestVolumes_PodWaitsForMissingSecret checks that the pod reports the missing Secret, and starts once
// the Secret exists.
func TestVolumes_PodWaitsForMissingSecret(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("late.yaml", podText("late", "volumes: [{name: s, secret: {secretName: keys}}],", "volumeMounts: [{name: s, mountPath: /s}],", "cat /s/password; echo"))
	n.start()
	pod := n.waitPod(startTimeout, "late", "to wait for its secret", func(p *corev1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason == "ContainerCreating" && strings.Contains(w.Message, `secrets "default/keys" not found`) {
				return true
			}
		}
		return false
	})
	require.Equal(t, corev1.PodPending, pod.Status.Phase)
	waitFor(t, startTimeout, "the event FailedMount", func() (string, bool) { return n.output.String(), n.output.linesWith("FailedMount") > 0 })
	sandboxes, err := bed.sandboxes(podLabels(pod))
	require.NoError(t, err)
	require.Empty(t, sandboxes, "no sandbox may be created while the Secret is missing")
	n.write("objects.yaml", objects)
	requireSays(t, n.said(n.waitRunning("late")), "hunter2")
}

func TestSecurityContext(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("secure.yaml", podText("secure", "securityContext: {runAsUser: 1234, runAsGroup: 5678, supplementalGroups: [99], seccompProfile: {type: RuntimeDefault}},", `
  securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}},`,
		"id; touch /x 2>&1; grep -E '^(CapBnd|Seccomp|NoNewPrivs):' /proc/self/status | tr '\t' ' '"))
	n.write("open.yaml", podText("open", "", "securityContext: {privileged: true},", "grep -E '^Seccomp:' /proc/self/status | tr '\t' ' '"))
	n.write("root.yaml", podText("root", "", "securityContext: {runAsNonRoot: true},", "id"))
	n.write("named.yaml", strings.ReplaceAll(podText("named", "", "", "id"), "busybox:1", "named:1"))
	n.write("unsure.yaml", strings.ReplaceAll(podText("unsure", "", "securityContext: {runAsNonRoot: true},", "id"), "busybox:1", "named:1"))
	n.start()
	requireSays(t, n.said(n.waitRunning("secure")), "uid=1234 gid=5678 groups=99,5678", "touch: /x: Read-only file system",
		"CapBnd: 0000000000000400", "NoNewPrivs: 1", "Seccomp: 2")
	requireSays(t, n.said(n.waitRunning("open")), "Seccomp: 0")
	requireSays(t, n.said(n.waitRunning("named")), "uid=1234(app) gid=1234(app) groups=1234(app)")
	for name, want := range map[string]string{
		"root":   "container has runAsNonRoot and image will run as root",
		"unsure": "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
	} {
		n.waitPod(startTimeout, name, "to be refused", func(p *corev1.Pod) bool {
			w := firstStatus(p).State.Waiting
			return w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, want)
		})
	}
}

func TestPodNetwork_AppliesDNSHostsAndHostNetwork(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("none.yaml", podText("none", `hostname: front, hostAliases: [{ip: 192.0.2.9, hostnames: [db, db.example]}],
    dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.53], searches: [example.test], options: [{name: ndots, value: "2"}]},`, "",
		"cat /etc/resolv.conf; hostname; tr '\t' ' ' < /etc/hosts"))
	n.write("cluster.yaml", podText("cluster", "dnsPolicy: ClusterFirst,", "", "cat /etc/resolv.conf"))
	n.write("host.yaml", podText("host", "hostNetwork: true, hostPID: true,", "", "hostname; ls -d /proc/"+fmt.Sprint(os.Getpid())+"; head -1 /etc/hosts"))
	n.start("--cluster-dns", "192.0.2.10", "--cluster-domain", "cluster.test")
	pod := n.waitRunning("none")
	requireSays(t, n.said(pod), "nameserver 192.0.2.53", "search example.test", "options ndots:2", "front", pod.Status.PodIP+" front", "192.0.2.9 db db.example")
	text := n.said(n.waitRunning("cluster"))
	require.Contains(t, text, "nameserver 192.0.2.10\n")
	require.Contains(t, text, "search default.svc.cluster.test svc.cluster.test cluster.test")
	require.Contains(t, text, "options ndots:5\n")
	name, err := os.Hostname()
	require.NoError(t, err)
	host := n.waitRunning("host")
	requireSays(t, n.said(host), name, fmt.Sprintf("/proc/%d", os.Getpid()), "# Kubernetes-managed hosts file (host network).")
	require.Equal(t, host.Status.HostIP, host.Status.PodIP)
}

func TestTerminationMessage_IsReportedInStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	text := func(name, extra, script string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {restartPolicy: Never, containers: [{name: main, image: kubeparts.test/busybox:1, %s command: [sh, -c, %q]}]}
`, name, extra, script)
	}
	n.write("file.yaml", text("file", "", "echo bye > /dev/termination-log; exit 3"))
	n.write("log.yaml", text("log", "terminationMessagePolicy: FallbackToLogsOnError,", "echo it went wrong; sleep 0.5; exit 4"))
	n.write("long.yaml", text("long", "terminationMessagePath: /tmp/words,", "yes 0123456 | head -c 9000 > /tmp/words"))
	n.start()
	words := func(name string) string {
		var message string
		n.waitPod(startTimeout, name, "to end", func(p *corev1.Pod) bool {
			end := firstStatus(p).State.Terminated
			if end == nil || p.Status.Phase == corev1.PodRunning {
				return false
			}
			message = end.Message
			return true
		})
		return message
	}
	require.Equal(t, "bye\n", words("file"))
	require.Equal(t, "it went wrong\n", words("log"))
	require.Len(t, words("long"), 4096)
	n.agent.stop(t)
	n.start()
	require.Equal(t, "bye\n", words("file"), "after a restart of the agent")
	for _, name := range []string{"file", "log", "long"} {
		n.remove(name + ".yaml")
		n.waitGone(20*time.Second, name)
	}
	n.requireNothingLeft()
}

func TestImagePull_PrivateImageRequiresSecret(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	env, err := bedEnv(bed.dir)
	require.NoError(t, err)
	image := env["KPBED_REGISTRY"] + "/locked:1"
	_, err = bed.images.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	require.NoError(t, err)
	secret := func(name, password string) string {
		auth := base64.StdEncoding.EncodeToString([]byte("kube:" + password))
		config := base64.StdEncoding.EncodeToString([]byte(`{"auths":{"` + env["KPBED_REGISTRY"] + `":{"auth":"` + auth + `"}}}`))
		return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ntype: kubernetes.io/dockerconfigjson\ndata: {.dockerconfigjson: %s}\n", name, config)
	}
	n.write("secrets.yaml", secret("right", "parts")+secret("wrong", "guessed"))
	pod := func(name, pull string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {%s containers: [{name: main, image: %q, args: [sleep, \"3600\"]}]}\n", name, pull, image)
	}
	n.write("without.yaml", pod("without", ""))
	n.write("wrong.yaml", pod("wrong", "imagePullSecrets: [{name: wrong}],"))
	n.start()
	for _, name := range []string{"without", "wrong"} {
		n.waitPod(startTimeout, name, "to wait with ErrImagePull or ImagePullBackOff", func(p *corev1.Pod) bool {
			w := firstStatus(p).State.Waiting
			return w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") && strings.Contains(strings.ToLower(w.Message), "authoriz")
		})
	}
	n.write("right.yaml", pod("right", "imagePullSecrets: [{name: wrong}, {name: right}],"))
	n.waitRunning("right")
	for _, login := range []string{"kube:guessed", "kube:parts"} {
		require.NotContains(t, n.output.String(), login)
		require.NotContains(t, n.output.String(), base64.StdEncoding.EncodeToString([]byte(login)))
	}
}
