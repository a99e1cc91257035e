//go:build linux && hostile

package hostile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// pod returns the manifest of a pod. spec has additional lines of its spec, in flow style;
// container has additional lines of its container "main".
func pod(name, image, spec, container string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
%s  containers:
  - name: main
    image: %s
    imagePullPolicy: IfNotPresent
%s`, name, spec, image, container)
}

// steadyPods returns the well-formed pods. Their manifests exist during a whole run, and
// they must run whenever there is no attack.
func steadyPods() map[string]string {
	return map[string]string{
		"plain": pod("plain", "demo/web:1", "", "    readinessProbe: {exec: {command: [check]}, periodSeconds: 1}\n"),
		"steps": pod("steps", "demo/web:1",
			"  initContainers:\n  - {name: first, image: demo/job:1}\n"+
				"  - {name: side, image: demo/chatty:1, restartPolicy: Always}\n", ""),
		"bad": pod("bad", badImage, "", probe("readinessProbe", "httpGet", firstPort+4)),
		"two": pod("two", "demo/busy:1", "  volumes: [{name: v, emptyDir: {}}]\n",
			"    volumeMounts: [{name: v, mountPath: /v}]\n  - {name: other, image: demo/slow:1}\n"),
	}
}

// steadyContainers returns how many containers of a steady pod run.
func steadyContainers(name string) int {
	return map[string]int{"plain": 1, "steps": 2, "bad": 1, "two": 2}[name]
}

// probe returns a probe of a bad server.
func probe(kind, handler string, port int) string {
	if handler == "tls" {
		return fmt.Sprintf("    %s: {httpGet: {port: %d, scheme: HTTPS}, periodSeconds: 1, failureThreshold: 2}\n", kind, port)
	}
	return fmt.Sprintf("    %s: {%s: {port: %d}, periodSeconds: 1, failureThreshold: 2}\n", kind, handler, port)
}

// A hostile manifest is a file that an agent must tolerate. Some of them define pods.
type manifest struct {
	kind string
	text func(rng *rand.Rand, name string) string
}

// kindsThatLive is the number of hostile manifests, at the start of the list, whose pods
// run.
const kindsThatLive = 5

// hostileManifests returns one manifest of each kind. many is the number of containers,
// ports and so on of the largest manifest.
func hostileManifests(many int) []manifest {
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	web := func(spec, container string) func(*rand.Rand, string) string {
		return func(_ *rand.Rand, name string) string { return pod(name, "demo/web:1", spec, container) }
	}
	fixed := func(text string) func(*rand.Rand, string) string {
		return func(*rand.Rand, string) string { return text }
	}
	meta := func(format string, args ...any) func(*rand.Rand, string) string {
		return func(_ *rand.Rand, name string) string {
			return strings.Replace(pod(name, "demo/web:1", "", ""), "{name: "+name+"}", "{name: "+name+", "+fmt.Sprintf(format, args...)+"}", 1)
		}
	}
	handlers, kinds := []string{"httpGet", "tcpSocket", "grpc", "tls"}, []string{"livenessProbe", "readinessProbe", "startupProbe"}
	return []manifest{
		{"probes of bad servers", func(rng *rand.Rand, name string) string {
			text := ""
			for _, kind := range kinds {
				if kind == "readinessProbe" || rng.IntN(2) == 0 {
					text += probe(kind, handlers[rng.IntN(len(handlers))], firstPort+rng.IntN(len(badServers())))
				}
			}
			return pod(name, badImage, "", text)
		}},
		{"hooks to bad servers", func(rng *rand.Rand, name string) string {
			port := func() int { return firstPort + rng.IntN(len(badServers())) }
			return pod(name, badImage, "", fmt.Sprintf(
				"    lifecycle: {postStart: {httpGet: {port: %d}}, preStop: {httpGet: {port: %d}}}\n", port(), port()))
		}},
		{"crashing", func(_ *rand.Rand, name string) string { return pod(name, "demo/crash:1", "", "") }},
		{"stubborn", func(_ *rand.Rand, name string) string { return pod(name, "demo/stubborn:1", "", "") }},
		{"missing image", func(_ *rand.Rand, name string) string { return pod(name, "missing.invalid/no:1", "", "") }},
		{"cut off", func(rng *rand.Rand, name string) string {
			text := pod(name, "demo/web:1", "", "")
			return text[:rng.IntN(len(text))]
		}},
		{"spoiled", func(rng *rand.Rand, name string) string {
			return string(spoil(rng, []byte(pod(name, "demo/web:1", "", ""))))
		}},
		{"empty", fixed("")},
		{"no mapping", fixed("- a\n- b\n")},
		{"tabs", fixed("apiVersion:\tv1\n\tkind: Pod\n")},
		{"deep", fixed("apiVersion: v1\nkind: Pod\nspec: " + strings.Repeat("[", 20_000))},
		{"deep mapping", fixed(strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5000))},
		{"aliases", fixed("a: &a [x,x,x,x,x,x,x,x,x]\n" + list(9, "b%[1]d: &b%[1]d [*a,*a,*a,*a]\n") + "c: [" +
			strings.Repeat("*b8,", 2000) + "*b8]\n")},
		{"alias of itself", fixed("apiVersion: v1\nkind: Pod\nmetadata: &m {name: x, labels: *m}\n")},
		{"large", fixed("# " + strings.Repeat("x", 12<<20))},
		{"many documents", fixed(strings.Repeat("---\n", 20_000))},
		{"nested list", fixed(strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 200) + strings.Repeat("]}", 200))},
		{"huge grace", func(_ *rand.Rand, name string) string {
			return strings.Replace(pod(name, "demo/web:1", "", ""), "Seconds: 1", "Seconds: 9223372036854775807", 1)
		}},
		{"negative grace", func(_ *rand.Rand, name string) string {
			return strings.Replace(pod(name, "demo/web:1", "", ""), "Seconds: 1", "Seconds: -9223372036854775808", 1)
		}},
		{"huge numbers", web("  activeDeadlineSeconds: 9223372036854775807\n  priority: -2147483648\n",
			"    resources: {requests: {cpu: 1e999999999, memory: 9E}, limits: {memory: -1}}\n")},
		{"huge probe", web("", "    livenessProbe: {exec: {command: [x]}, periodSeconds: 2147483647, timeoutSeconds: 2147483647}\n")},
		{"variables", web("", "    env:\n    - {name: V0, value: 0123456789}\n"+
			list(60, "    - {name: X%[1]d, value: \"$(V0)$(X0)$(X1)$(X2)$(X3)$(X4)$(X5)$(X6)$(X7)$(X8)$(X9)$(X10)\"}\n"))},
		{"doubling variables", func(_ *rand.Rand, name string) string {
			text := "    env:\n    - {name: V0, value: \"0123456789\"}\n"
			for i := range 60 {
				text += fmt.Sprintf("    - {name: V%d, value: \"$(V%d)$(V%d)\"}\n", i+1, i, i)
			}
			return pod(name, "demo/web:1", "", text)
		}},
		{"control characters", func(_ *rand.Rand, _ string) string {
			return pod(`"a\e[2J\0b\n"`, `"x\u202e"`, "", "    command: [\"\\0\"]\n")
		}},
		{"control characters in values", web("  nodeSelector: {\"a\\e\": \"\\0\"}\n", "    env: [{name: \"A\\nB\", value: \"\\e[2J\\0\"}]\n")},
		{"long label", meta("labels: {a: %s}", strings.Repeat("x", longText))},
		{"long annotation", meta("annotations: {a: %s}", strings.Repeat("x", 300_000))},
		{"UID that is a path", meta("uid: ../../../../tmp/hostile")},
		{"same UID", meta("uid: 11111111-2222-3333-4444-555555555555")},
		{"being deleted", meta("deletionTimestamp: 2020-01-01T00:00:00Z, deletionGracePeriodSeconds: -1, finalizers: [a/b]")},
		{"owner", meta("ownerReferences: [{apiVersion: v1, kind: Node, name: x, uid: y, controller: true}], generateName: z")},
		{"sub-path upwards", web("  volumes: [{name: v, emptyDir: {}}]\n",
			"    volumeMounts: [{name: v, mountPath: /a/../../b, subPath: ../../../etc}]\n")},
		{"sub-path of a variable", web("  volumes: [{name: v, emptyDir: {}}]\n",
			"    env: [{name: P, value: ../../../..}]\n    volumeMounts: [{name: v, mountPath: /a, subPathExpr: $(P)/etc}]\n")},
		{"log path upwards", web("", "    terminationMessagePath: ../../../../../../etc/passwd\n")},
		{"volume upwards", web("  volumes: [{name: ../../v, emptyDir: {}}]\n", "")},
		{"many containers", web("", list(many, "  - {name: c%d, image: demo/web:1}\n"))},
		{"many containers of one name", web("", list(many, "  - {name: main, image: demo/job:%d}\n"))},
		{"many ports", web("", "    ports:\n"+list(20*many, "    - {containerPort: %[1]d, hostPort: %[1]d, name: p}\n"))},
		{"many volumes", web("  volumes:\n"+list(5*many, "  - {name: v%d, emptyDir: {}}\n"), "")},
		{"unsupported", web("  hostUsers: false\n  runtimeClassName: \"../x\"\n", "    resources: {claims: [{name: x}], limits: {a.b/c: 1}}\n")},
		{"all restart rules", web("  restartPolicy: Never\n", "    restartPolicy: \"\\0\"\n    restartPolicyRules: [{action: X}]\n")},
		{"another kind", fixed("apiVersion: apps/v9\nkind: \"\\e[2J\"\nmetadata: {name: x}\n")},
		{"settings of others", fixed("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {\"../../x\": y, \"..\": z}\n")},
	}
}

// placeFile creates something at path that is not a regular file.
func placeFile(rng *rand.Rand, path string) (kind string, err error) {
	switch rng.IntN(6) {
	case 0:
		return "pipe", syscall.Mkfifo(path, 0o600)
	case 1:
		return "folder", os.MkdirAll(filepath.Join(path, "a.yaml"), 0o755)
	case 2:
		return "link to itself", os.Symlink(path, path)
	case 3:
		return "link to nothing", os.Symlink(path+".no", path)
	case 4:
		return "endless device", os.Symlink("/dev/zero", path)
	default:
		return "silent device", os.Symlink("/dev/tty", path)
	}
}
